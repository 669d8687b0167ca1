// What the busy cycles of each lane went to: its stages, and below each its steps, as wide as their shares.

import { make } from "./element.js";
import { percent } from "./text.js";

const ROW = 28;
// What is less would be called 0.0 %.
const LEAST = 0.0005;
// Shares are drawn as such of the picture's width, so that what is written in it isn't stretched.
const wide = (share) => `${(100 * share).toFixed(3)}%`;

// Where a part begins, how wide it is drawn, and what it says; what doesn't fit is cut.
function part(kind, from, width, row, says) {
  const inside = [make("title", {}, says), make("rect", { width: "100%", height: ROW - 2 }), make("text", { x: 6, y: 18 }, says)];
  return make("svg", { class: kind, x: wide(from), y: ROW * row, width: wide(width), height: ROW - 2 }, ...inside);
}

const sum = (parts) => parts.reduce((all, { share }) => all + share, 0);

const say = ({ name, share }) => `${name} ${percent(share)}`;

class Flame {
  #rows = 1;

  constructor(lane) {
    this.lane = lane;
    this.picture = make("svg", { width: "100%", role: "img" });
    this.element = make("figure", {}, make("figcaption", {}, lane), this.picture);
  }

  show(stages) {
    const [parts, says] = [[], []];
    // Stages are timed now and then, and all together may seem to take more than there was; so may steps, which are always timed.
    const all = Math.max(1, sum(stages));
    let left = 0;
    for (const stage of stages) {
      const width = stage.share / all;
      parts.push(part("stage", left, width, 0, say(stage)));
      const inside = Math.max(stage.share, sum(stage.steps));
      let begin = left;
      for (const step of stage.steps) {
        const narrow = inside > 0 ? (width * step.share) / inside : 0;
        parts.push(part("step", begin, narrow, 1, say(step)));
        begin += narrow;
      }
      const steps = stage.steps.length > 0 ? ` (${stage.steps.map(say).join(", ")})` : "";
      says.push(say(stage) + steps);
      left += width;
    }
    const rest = 1 - left;
    if (rest >= LEAST) {
      const words = stages.length > 0 ? say({ name: "other", share: rest }) : "not busy";
      parts.push(part("rest", left, rest, 0, words));
      says.push(words);
    }
    // It doesn't become smaller, so that what is below stays where it is.
    this.#rows = Math.max(this.#rows, stages.some(({ steps }) => steps.length > 0) ? 2 : 1);
    this.picture.setAttribute("height", ROW * this.#rows);
    this.picture.setAttribute("aria-label", `Busy cycles of ${this.lane}: ${says.join("; ")}`);
    this.picture.replaceChildren(...parts);
  }
}

// Those of all lanes of which something is known.
export class Flames {
  #flames = new Map();

  constructor(section) {
    this.place = section.querySelector(".flames");
    this.none = make("p", { class: "none" }, "That is known of stages that were timed, as they are while warmlane top looks.");
    this.place.before(this.none);
  }

  // What is known of lanes now. A lane that was shown stays.
  show(all) {
    for (const { lane, stages } of all) {
      if (!this.#flames.has(lane)) {
        if (stages.length === 0) continue;
        const flame = new Flame(lane);
        this.#flames.set(lane, flame);
        this.place.append(flame.element);
      }
      this.#flames.get(lane).show(stages);
    }
    const lanes = new Set(all.map(({ lane }) => lane));
    for (const [lane, { element }] of this.#flames) {
      if (lanes.has(lane)) continue;
      element.remove();
      this.#flames.delete(lane);
    }
    this.none.hidden = this.#flames.size > 0;
  }

  // Another instance begins.
  clear() {
    this.show([]);
  }
}
