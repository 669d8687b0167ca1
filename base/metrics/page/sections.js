// What is shown of a look, section by section.

import { Charts } from "./chart.js";
import { Flames } from "./flame.js";
import { Graphs } from "./graph.js";
import { Heats } from "./heat.js";
import { Table } from "./table.js";
import { cycles, percent, short, whole } from "./text.js";

const at = (id) => document.getElementById(id);
const text = (head) => ({ head, class: "text" });
const long = (head) => ({ head, class: "text long" });
const number = (head) => ({ head });

export class Sections {
  #charts = {};
  #pools = null;
  #last = null;

  constructor() {
    for (const id of ["ports", "drops", "pools"]) this.#charts[id] = new Charts(at(id));
    const ways = ["received/s", "received bits/s", "received", "sent/s", "sent bits/s", "sent"];
    this.ports = new Table(at("ports"), "Packets and bits a second that ports receive and send, and packets so far", [text("port"), ...ways.map(number)], "It has no ports.");
    this.drops = new Table(
      at("drops"),
      "Packets that were dropped: a second, and so far",
      [text("reason"), number("packets/s"), number("packets"), { head: "severity", class: "text severity" }, text("by"), long("meaning")],
      "Nothing was dropped.",
    );
    const lane = ["packets/s", "packets", "busy", "asleep", "cycles/packet"];
    this.lanes = new Table(at("lanes"), "What lanes move, and how they spend their cycles", [text("lane"), ...lane.map(number)], "It has no lanes.");
    this.graphs = new Graphs(at("stages"));
    this.flames = new Flames(at("stages"));
    const stage = ["packets/s", "packets", "made/s", "cycles/packet", "99 % in", "share"];
    this.stages = new Table(
      at("stages"),
      "Packets that stages were given and made. Cycles are known while warmlane top looks, and always of single steps that measure them; the share is that of the lane's busy ones",
      [text("stage"), ...stage.map(number)],
      "It has no stages.",
    );
    this.heats = new Heats(at("pools"));
    const details = at("all").querySelector("details");
    const value = [text("labels"), text("value"), number("count"), number("change/s"), text("unit"), long("meaning")];
    this.all = new Table(details, "All values, as warmlane stats --json has them", value, "No value has these words.");
    details.addEventListener("toggle", () => this.#showAll());
    at("only").addEventListener("input", () => this.#showAll());
  }

  show(look) {
    this.#last = look;
    const time = look.now.age_ns / 1e9;
    const rate = (change) => (change === null ? "–" : short(look.rate(change)));

    const ports = look.ports();
    const way = ({ change, bits, all }) => [rate(change), rate(bits), whole(all)];
    this.ports.show(ports.map(({ name, received, sent }) => ({ key: name, cells: [name, ...way(received), ...way(sent)] })));
    const drops = look.drops();
    this.drops.show(
      drops.map((drop) => ({
        key: drop.key,
        class: drop.severity,
        cells: [drop.reason, rate(drop.change), whole(drop.all), drop.severity, drop.place, drop.help],
      })),
    );
    this.lanes.show(
      look.lanes().map((lane) => ({
        key: lane.name,
        cells: [lane.name, rate(lane.packets), whole(lane.all), percent(lane.busy), percent(lane.asleep), cycles(lane.cycles)],
      })),
    );
    this.stages.show(
      look.stages().map((stage) => ({
        key: stage.name,
        cells: [stage.name, rate(stage.packets), whole(stage.all), rate(stage.made), cycles(stage.cycles), stage.p99 ?? "–", percent(stage.share)],
      })),
    );
    this.graphs.show(look);
    this.flames.show(look.flames());
    this.#showPools(look, time);
    this.#showAll();
    if (look.seconds > 0) {
      const traffic = ports.map(({ name, received, sent }) => [name, [look.rate(received.change), look.rate(sent.change)]]);
      this.#charts.ports.show(time, ["received", "sent"], "packets/s", traffic);
      const dropped = drops.reduce((sum, drop) => sum + drop.change, 0);
      this.#charts.drops.show(time, ["dropped"], "packets/s", [["All drops", [look.rate(dropped)]]]);
    }
  }

  // The table has a column for each thing that the instance counts of a pool.
  #showPools(look, time) {
    const pools = look.pools();
    const names = [...new Set(pools.flatMap((pool) => Object.keys(pool.of)))];
    if (this.#pools?.names !== names.join(" ")) {
      this.#pools?.table.remove();
      this.#pools?.help.remove();
      const table = new Table(at("pools"), "Where the buffers of each pool are", [text("pool"), ...names.map(number)], "It has no pools.");
      const help = meanings(names.map((name) => [name, look.now.descriptions.pool?.[name]?.help ?? ""]));
      at("pools").querySelector("h3").before(table.scroll, table.none, help);
      this.#pools = { names: names.join(" "), table, help };
    }
    const count = (value) => (value ? whole(value.value) : "–");
    this.#pools.table.show(pools.map(({ name, of }) => ({ key: name, cells: [name, ...names.map((word) => count(of[word]))] })));
    const fill = pools.filter(({ of }) => of.outstanding);
    this.#charts.pools.show(time, ["outstanding"], "buffers", fill.map(({ name, of }) => [name, [of.outstanding.value]]));
  }

  // There may be thousands: they are written only where somebody has opened them.
  #showAll() {
    const look = this.#last;
    if (look === null || !at("all").querySelector("details").open) return;
    const only = at("only").value.trim();
    const rows = look.values.map((value) => {
      const labels = Object.entries(value.labels).map(([name, label]) => `${name}=${label}`).join(" ");
      const words = [value.set, value.name, ...(value.reason === undefined ? [] : [value.reason])].join(" ");
      const described = look.describe(value);
      const help = value.reason === undefined ? described?.help : look.now.reasons[value.reason]?.help;
      const change = described?.kind === "gauge" ? "" : short(look.rate(value.change));
      return { key: value.key, cells: [labels, words, whole(value.value), change, described?.unit ?? "", help ?? ""] };
    });
    this.all.show(rows.filter(({ cells: [labels, words] }) => `${labels} ${words}`.includes(only)));
  }

  // Another instance begins, in which this leads where, and buffers lie so.
  begin(graphs, layout) {
    for (const charts of Object.values(this.#charts)) charts.clear();
    this.graphs.build(graphs);
    this.heats.build(layout);
    this.flames.clear();
  }
}

// What columns mean, to unfold.
function meanings(all) {
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  summary.textContent = "What the columns mean";
  const list = document.createElement("dl");
  for (const [name, help] of all) {
    const [term, meaning] = [document.createElement("dt"), document.createElement("dd")];
    [term.textContent, meaning.textContent] = [name, help];
    list.append(term, meaning);
  }
  details.append(summary, list);
  details.hidden = all.length === 0;
  return details;
}
