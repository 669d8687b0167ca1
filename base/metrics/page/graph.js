// What leads where in each lane, as SVG, with what passes along.

import { make } from "./element.js";
import { place } from "./rates.js";
import { short } from "./text.js";

const WIDTH = 150;
const HEIGHT = 32;
// Between columns there is space for what is written beside the ways, and between rows for ways that lead back.
const COLUMN = WIDTH + 140;
const ROW = HEIGHT + 36;
const MARGIN = 8;
// Longer names are cut in the picture.
const LETTERS = 19;

// What a pipeline is made of, with numbers instead of nodes. What leads from one node to another by several edges is one way.
function waysOf({ nodes, edges }) {
  const numbers = new Map(nodes.map((node, number) => [JSON.stringify(node), number]));
  const ways = new Map();
  for (const edge of edges) {
    const [from, to] = [edge.from, edge.to].map((node) => numbers.get(JSON.stringify(node)));
    if (from === undefined || to === undefined) continue;
    const key = `${from} ${to}`;
    if (!ways.has(key)) ways.set(key, { from, to, names: [] });
    const name = [edge.output, edge.input].filter((part) => part !== undefined).join(" → ");
    if (name) ways.get(key).names.push(name);
  }
  return [...ways.values()];
}

// The column of each node: behind those that lead there, unless they lead back.
function columnsOf(nodes, ways) {
  const [NEW, OPEN, DONE] = [0, 1, 2];
  const states = nodes.map(() => NEW);
  const [order, onward] = [[], []];
  const visit = (node) => {
    states[node] = OPEN;
    for (const way of ways.filter(({ from }) => from === node)) {
      if (states[way.to] === OPEN) continue;
      onward.push(way);
      if (states[way.to] === NEW) visit(way.to);
    }
    states[node] = DONE;
    order.unshift(node);
  };
  nodes.forEach((_, node) => {
    if (states[node] === NEW) visit(node);
  });
  const columns = nodes.map(() => 0);
  for (const node of order) {
    for (const { to } of onward.filter(({ from }) => from === node)) columns[to] = Math.max(columns[to], columns[node] + 1);
  }
  // Whatever leaves does so on the right.
  const last = Math.max(0, ...columns);
  return columns.map((column, node) => (nodes[node].output === undefined ? column : last));
}

const nameOf = (node) => Object.values(node)[0];

const cut = (name) => (name.length > LETTERS ? `${name.slice(0, LETTERS - 1)}…` : name);

// The graph of one pipeline.
class Graph {
  constructor(lane, pipeline) {
    this.labels = lane.labels;
    this.nodes = pipeline.nodes;
    this.ways = waysOf(pipeline);
    const columns = columnsOf(this.nodes, this.ways);
    const inColumn = (wanted) => this.nodes.map((_, node) => node).filter((node) => columns[node] === wanted);
    const rows = Math.max(1, ...columns.map((column) => inColumn(column).length));
    // The left end of each node's middle.
    const places = this.nodes.map((_, node) => {
      const others = inColumn(columns[node]);
      const above = (rows - others.length) / 2 + others.indexOf(node);
      return { x: MARGIN + COLUMN * columns[node], y: MARGIN + ROW * (above + 0.5) };
    });
    const name = place(lane.labels);
    const says = this.ways.map(({ from, to, names }) => {
      const by = names.length > 0 ? ` by ${names.join(", ")}` : "";
      return `${nameOf(this.nodes[from])} to ${nameOf(this.nodes[to])}${by}`;
    });
    const [width, height] = [COLUMN * Math.max(0, ...columns) + WIDTH + 2 * MARGIN, ROW * rows + 2 * MARGIN];
    this.rates = this.ways.map(() => make("text", { class: "rate" }));
    const picture = make(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `What leads where in ${name}: ${says.join("; ")}` },
      ...this.ways.map((way, number) => {
        const isOnward = columns[way.from] < columns[way.to];
        return drawWay(way, places[way.from], places[way.to], isOnward, textPlace(way, this.ways), this.rates[number]);
      }),
      ...this.nodes.map((node, number) => drawNode(node, places[number])),
    );
    // What is wider than a phone can be scrolled by keyboard, too.
    const scroll = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `What leads where in ${name}` }, picture);
    this.element = make("figure", {}, make("figcaption", {}, name), scroll);
  }

  show(look) {
    look.along(this).forEach((change, number) => {
      const rate = change === null ? null : look.rate(change);
      const text = rate === null ? "" : `${short(rate)}/s`;
      if (this.rates[number].textContent !== text) this.rates[number].textContent = text;
    });
  }
}

function drawNode(node, { x, y }) {
  const [kind] = Object.keys(node);
  const box = make("rect", { x, y: y - HEIGHT / 2, width: WIDTH, height: HEIGHT, rx: kind === "stage" ? 4 : HEIGHT / 2 });
  const text = make("text", { x: x + WIDTH / 2, y: y + 5 }, cut(nameOf(node)));
  return make("g", { class: kind }, box, text);
}

// How far along a way its text stands: where ways fan out, near their ends, and where they come together, near where they begin. In the
// middle they are steep there, and close to each other.
function textPlace(way, ways) {
  if (ways.filter(({ from }) => from === way.from).length > 1) return 0.78;
  return ways.filter(({ to }) => to === way.to).length > 1 ? 0.22 : 0.5;
}

// The name stands above the way at its place, and the rate below.
function drawWay({ names }, from, to, isOnward, along, rate) {
  const begin = { x: from.x + WIDTH, y: from.y };
  const gap = COLUMN - WIDTH;
  let line, middle;
  if (isOnward) {
    const bend = begin.x + gap / 2;
    line = `M${begin.x} ${begin.y}C${bend} ${begin.y} ${bend} ${to.y} ${begin.x + gap} ${to.y}H${to.x}`;
    // Of the curve of the line, whose middle two points are both at the bend.
    const right = 1.5 * along * (1 - along) + along ** 3;
    middle = { x: begin.x + gap * right, y: begin.y + (to.y - begin.y) * (3 * along ** 2 - 2 * along ** 3) };
  } else {
    const below = Math.max(begin.y, to.y) + ROW / 2;
    line = `M${begin.x} ${begin.y}C${begin.x + gap / 2} ${below} ${to.x - gap / 2} ${below} ${to.x} ${to.y}`;
    middle = { x: (begin.x + to.x) / 2, y: below - ROW / 8 };
  }
  const head = `M${to.x - 8} ${to.y - 4}L${to.x} ${to.y}L${to.x - 8} ${to.y + 4}Z`;
  rate.setAttribute("x", middle.x);
  rate.setAttribute("y", middle.y + 15);
  const name = make("text", { x: middle.x, y: middle.y - 5 }, names.map(cut).join(", "));
  return make("g", { class: "way" }, make("path", { d: line }), make("path", { class: "head", d: head }), name, rate);
}

// Those of all lanes.
export class Graphs {
  #graphs = [];

  constructor(section) {
    this.place = section.querySelector(".graphs");
  }

  // Shows those of an instance, and no others any more.
  build({ lanes }) {
    this.#graphs = lanes.flatMap((lane) => lane.pipelines.map((pipeline) => new Graph(lane, pipeline)));
    this.place.replaceChildren(...this.#graphs.map(({ element }) => element));
  }

  show(look) {
    for (const graph of this.#graphs) graph.show(look);
  }
}
