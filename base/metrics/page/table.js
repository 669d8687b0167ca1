// Tables that change where they stand: rows stay the same elements, so that what is selected or read aloud isn't lost.

let tables = 0;

export class Table {
  #rows = new Map();

  // Columns have a `head`, and may have a `class`. The first one names the row.
  constructor(place, caption, columns, none) {
    this.columns = columns;
    const table = document.createElement("table");
    const title = table.createCaption();
    title.id = `table-${(tables += 1)}`;
    title.textContent = caption;
    const head = table.createTHead().insertRow();
    for (const column of columns) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.className = column.class ?? "";
      cell.textContent = column.head;
      head.append(cell);
    }
    this.body = table.createTBody();
    // What is wider than a phone can be scrolled by keyboard, too.
    this.scroll = document.createElement("div");
    this.scroll.className = "scroll";
    this.scroll.tabIndex = 0;
    this.scroll.setAttribute("role", "region");
    this.scroll.setAttribute("aria-labelledby", title.id);
    this.scroll.append(table);
    this.none = document.createElement("p");
    this.none.className = "none";
    this.none.textContent = none;
    place.append(this.scroll, this.none);
    this.show([]);
  }

  // Rows have a `key` of their own, `cells`, and may have a `class`.
  show(rows) {
    const keys = new Set(rows.map((row) => row.key));
    for (const [key, row] of this.#rows) {
      if (keys.has(key)) continue;
      row.remove();
      this.#rows.delete(key);
    }
    rows.forEach(({ key, cells, class: name }, index) => {
      const row = this.#rows.get(key) ?? this.#add(key);
      if (this.body.rows[index] !== row) this.body.insertBefore(row, this.body.rows[index] ?? null);
      row.className = name ?? "";
      cells.forEach((text, column) => {
        const cell = row.cells[column];
        if (cell.textContent !== text) cell.textContent = text;
      });
    });
    this.scroll.hidden = rows.length === 0;
    this.none.hidden = rows.length > 0;
  }

  #add(key) {
    const row = this.body.insertRow();
    this.columns.forEach((column, index) => {
      const cell = document.createElement(index === 0 ? "th" : "td");
      if (index === 0) cell.scope = "row";
      cell.className = column.class ?? "";
      row.append(cell);
    });
    this.#rows.set(key, row);
    return row;
  }

  remove() {
    this.scroll.remove();
    this.none.remove();
  }
}
