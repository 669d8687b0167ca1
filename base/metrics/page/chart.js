// Lines of the last minutes, as SVG.

import { make } from "./element.js";
import { short } from "./text.js";

const SECONDS = 120;
const WIDTH = 300;
const HEIGHT = 96;

// 1, 2 or 5 and zeros: the end of an axis that has all of these values.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((times) => times * power).find((end) => end >= value);
}

// A chart with a line, or two, below a name.
export class Chart {
  #points = [];

  constructor(name, lines, unit) {
    this.name = name;
    this.lines = lines;
    this.unit = unit;
    const classes = ["first", "second"];
    this.legends = lines.map((line, index) => make("span", { class: classes[index] }));
    this.paths = lines.map((line, index) => make("path", { class: classes[index], d: "" }));
    this.end = make("span", {});
    this.picture = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, ...this.paths);
    this.element = make(
      "figure",
      {},
      make("figcaption", {}, name),
      make("div", { class: "legend" }, ...this.legends),
      make("div", { class: "axis", "aria-hidden": "true" }, this.end),
      this.picture,
      make("div", { class: "axis", "aria-hidden": "true" }, make("span", {}, "2 minutes ago"), make("span", {}, "now")),
    );
  }

  // Adds the values at a time in seconds, one for each line.
  add(time, values) {
    this.#points.push({ time, values });
    while (this.#points[0].time < time - SECONDS) this.#points.shift();
    const end = roundUp(Math.max(...this.#points.flatMap((point) => point.values)));
    this.end.textContent = `${short(end)} ${this.unit}`;
    const says = this.lines.map((line, index) => `${line} ${short(values[index])}`.trim());
    says.forEach((text, index) => (this.legends[index].textContent = `${index ? "╌" : "━"} ${text}`));
    this.picture.setAttribute("aria-label", `${this.name}, ${this.unit}: ${says.join(", ")}`);
    this.paths.forEach((path, index) => {
      const at = (point) => {
        const x = WIDTH * (1 - (time - point.time) / SECONDS);
        // A line at either end keeps its whole width.
        const y = 2 + (HEIGHT - 4) * (1 - point.values[index] / end);
        return `${x.toFixed(1)} ${y.toFixed(1)}`;
      };
      path.setAttribute("d", `M${this.#points.map(at).join("L")}`);
    });
  }
}

// The charts of a section, by name.
export class Charts {
  #charts = new Map();

  constructor(section) {
    this.place = section.querySelector(".charts");
  }

  // Adds values to charts, makes those that are new, and takes away those that aren't there any more.
  show(time, lines, unit, all) {
    for (const [name, values] of all) {
      if (!this.#charts.has(name)) {
        const chart = new Chart(name, lines, unit);
        this.#charts.set(name, chart);
        this.place.append(chart.element);
      }
      this.#charts.get(name).add(time, values);
    }
    const names = new Set(all.map(([name]) => name));
    for (const [name, chart] of this.#charts) {
      if (names.has(name)) continue;
      chart.element.remove();
      this.#charts.delete(name);
    }
  }

  clear() {
    this.show(0, [], "", []);
  }
}
