// How many hot lines of each pool lie in each set of a core's last own cache, as a map of squares.

import { make } from "./element.js";
import { place } from "./rates.js";
import { short, whole } from "./text.js";

const SQUARE = 10;

// About four times as wide as high: all of it is seen at once.
const columnsOf = (sets) => 2 ** Math.ceil(Math.log2(Math.sqrt(4 * sets)));

// Bytes by the unit that people know them by.
function size(bytes) {
  const [unit, name] = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]].find(([unit]) => bytes >= unit) ?? [1, "bytes"];
  return `${short(bytes / unit)} ${name}`;
}

// The map of one pool. One set is marked, by keys or by pointing at it, and its number of lines is said.
class Heat {
  #marked = 0;

  constructor(cache, pool) {
    this.lines = pool.lines;
    this.columns = columnsOf(pool.lines.length);
    const rows = Math.ceil(pool.lines.length / this.columns);
    const [least, most] = [Math.min(...this.lines), Math.max(...this.lines)];
    const squares = this.lines.map((lines, set) => this.#square(set, { class: "set", "fill-opacity": (lines / Math.max(most, 1)).toFixed(3) }));
    this.mark = this.#square(0, { class: "mark" });
    const named = place(pool.labels);
    const range = least === most ? whole(most) : `${whole(least)} to ${whole(most)}`;
    const about = `${whole(pool.buffers)} buffers, ${whole(pool.stride)} bytes apart, put ${range} hot lines into each of ${whole(cache.sets)} sets of the L${cache.level} cache, which hold ${whole(cache.ways)} at a time`;
    this.picture = make(
      "svg",
      {
        viewBox: `0 0 ${this.columns * SQUARE} ${rows * SQUARE}`, role: "img", tabindex: 0,
        "aria-label": `Pool ${named}: ${about}. Arrow keys go from set to set.`,
      },
      ...squares,
      this.mark,
    );
    this.said = make("span", { role: "status" });
    const pages = pool.is_exact ? "" : ` Its pages of ${size(pool.page)} are smaller than a way of the cache: which of them the kernel has given decides about sets, too.`;
    this.element = make(
      "figure",
      {},
      make("figcaption", {}, named),
      make("p", {}, `${about}.${pages}`),
      this.picture,
      make("div", { class: "axis" }, this.said, make("span", { class: "scale", "aria-hidden": "true" }, make("span", {}, "0"), make("i", {}), make("span", {}, whole(most)))),
    );
    this.picture.addEventListener("keydown", (event) => this.#key(event));
    this.picture.addEventListener("pointermove", (event) => this.#point(event));
    this.picture.addEventListener("pointerdown", (event) => this.#point(event));
    this.#go(0);
  }

  #square(set, attributes) {
    const [x, y] = [set % this.columns, Math.floor(set / this.columns)].map((at) => at * SQUARE);
    return make("rect", { x, y, width: SQUARE, height: SQUARE, ...attributes });
  }

  #go(set) {
    if (set < 0 || set >= this.lines.length) return;
    this.#marked = set;
    this.mark.setAttribute("x", (set % this.columns) * SQUARE);
    this.mark.setAttribute("y", Math.floor(set / this.columns) * SQUARE);
    this.said.textContent = `set ${whole(set)}: ${whole(this.lines[set])} hot lines`;
  }

  #key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns };
    const ends = { Home: 0, End: this.lines.length - 1 };
    if (event.key in steps) this.#go(this.#marked + steps[event.key]);
    else if (event.key in ends) this.#go(ends[event.key]);
    else return;
    event.preventDefault();
  }

  #point({ clientX, clientY }) {
    const { left, top, width } = this.picture.getBoundingClientRect();
    const square = width / this.columns;
    const column = Math.min(Math.max(Math.floor((clientX - left) / square), 0), this.columns - 1);
    this.#go(Math.max(Math.floor((clientY - top) / square), 0) * this.columns + column);
  }
}

// Those of all pools; they stay as they are while the instance runs.
export class Heats {
  constructor(section) {
    this.place = section.querySelector(".heats");
    this.none = make("p", { class: "none" }, "The machine doesn't tell what its caches are like.");
    this.place.before(this.none);
  }

  build({ cache, pools }) {
    this.place.replaceChildren(...(cache === null ? [] : pools.map((pool) => new Heat(cache, pool).element)));
    this.none.hidden = cache !== null;
  }
}
