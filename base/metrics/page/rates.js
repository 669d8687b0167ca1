// What two looks at an instance's counters say: rates and shares, computed as `warmlane top` does.

// Names each value: its labels, set, name and reason, and a number, as several may have all of these in common.
function withKeys(values) {
  const seen = new Map();
  return values.map((value) => {
    const words = JSON.stringify([value.labels, value.set, value.name, value.reason]);
    const count = seen.get(words) ?? 0;
    seen.set(words, count + 1);
    return [`${words} ${count}`, value];
  });
}

// What labels say, in a word or two.
export function place(labels, without = []) {
  return Object.entries(labels).filter(([name]) => !without.includes(name)).map(([, label]) => label).join(" ");
}

const isSame = (labels, others) =>
  Object.keys(labels).length === Object.keys(others).length && Object.entries(labels).every(([name, label]) => others[name] === label);

// What counts how many packets a node of a graph was given.
const GIVEN = { input: "received", stage: "processed", output: "sent" };

const share = (part, whole) => (whole > 0 ? part / whole : null);

// In how many cycles a packet 99 % of a stage's bursts were done that were timed, to a power of two; null without any.
const ninetyNinth = (of) => {
  const change = (word) => of[word]?.change ?? 0;
  const bounds = Object.keys(of).flatMap((word) => (word.startsWith("below-") ? [Number(word.slice("below-".length))] : []));
  bounds.sort((one, other) => one - other);
  const counts = bounds.map((bound) => change(`below-${bound}`));
  const all = counts.reduce((sum, count) => sum + count, change("longer"));
  if (all === 0) return null;
  let seen = 0;
  const found = bounds.find((_, at) => (seen += counts[at]) >= 0.99 * all);
  return found === undefined ? `> ${bounds.at(-1)}` : `< ${found}`;
};

// A look, with the changes since an earlier one of the same instance, or null. What packets took in stages when they were last timed goes from
// look to look: with little traffic, no burst is timed between most of them.
export class Look {
  #taken;

  constructor(now, before, taken = new Map()) {
    this.now = now;
    this.#taken = taken;
    this.seconds = before ? (now.age_ns - before.age_ns) / 1e9 : 0;
    const earlier = new Map(before ? withKeys(before.values) : []);
    this.values = withKeys(now.values).map(([key, value]) => ({ ...value, key, change: this.#change(value, earlier.get(key), before) }));
    this.sets = this.#sets();
    for (const { labels, of } of this.#named("stage-timed")) {
      const cycles = share(of.cycles?.change ?? 0, of.packets?.change ?? 0);
      if (cycles !== null) taken.set(JSON.stringify(labels), { cycles, p99: ninetyNinth(of) });
    }
  }

  describe(value) {
    return this.now.descriptions[value.set]?.[value.name];
  }

  // By how much a counter has grown; they wrap at 2^64. What has come since the last look began at zero.
  #change(value, earlier, before) {
    if (!before || this.describe(value)?.kind === "gauge") return 0;
    const change = value.value - (earlier?.value ?? 0);
    return change < 0 ? change + 2 ** 64 : change;
  }

  // A second; null before there were two looks.
  rate(change) {
    return this.seconds > 0 ? change / this.seconds : null;
  }

  // Values that belong together, in the order in which the instance names them. Drops are not among them.
  #sets() {
    const sets = [];
    for (const value of this.values.filter((value) => value.reason === undefined)) {
      const words = JSON.stringify([value.labels, value.set]);
      let set = sets.at(-1);
      if (set?.words !== words) {
        set = { words, name: value.set, labels: value.labels, of: {} };
        sets.push(set);
      }
      set.of[value.name] = value;
    }
    return sets;
  }

  #named(name) {
    return this.sets.filter((set) => set.name === name);
  }

  // Packets and bits a second by port; where lanes have no ports, by their inputs and outputs, and a downstream's channels.
  ports() {
    const all = new Map();
    const hasQueues = this.#named("queue").length > 0;
    for (const { name, labels, of } of this.sets) {
      let port, isReceived, packets;
      if (name === "queue") {
        [port, isReceived, packets] = [place(labels, ["direction", "queue", "driver"]), labels.direction === "receive", "packets"];
      } else if (name === "channel") {
        [port, isReceived, packets] = [place(labels, ["function"]), false, "packets"];
      } else if (!hasQueues && (name === "input" || name === "output")) {
        [port, isReceived, packets] = name === "input" ? [labels.input, true, "received"] : [labels.output, false, "sent"];
      } else continue;
      if (!all.has(port)) all.set(port, { name: port, received: { change: 0, all: 0, bits: null }, sent: { change: 0, all: 0, bits: null } });
      const way = all.get(port)[isReceived ? "received" : "sent"];
      way.change += of[packets]?.change ?? 0;
      way.all += of[packets]?.value ?? 0;
      if (of.bytes) way.bits = (way.bits ?? 0) + 8 * of.bytes.change;
    }
    return [...all.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
  }

  lanes() {
    return this.#named("lane").map(({ labels, of }) => {
      const change = (name) => of[name]?.change ?? 0;
      const cycles = change("busy-cycles") + change("idle-cycles");
      return {
        name: place(labels),
        packets: change("packets"),
        all: of.packets?.value ?? 0,
        busy: share(change("busy-cycles"), cycles),
        asleep: share(change("asleep-cycles"), cycles),
        cycles: share(change("busy-cycles"), change("packets")),
      };
    });
  }

  // Stages, and the single steps of which some measure the cycles. `lane` and `stage` say of which they are.
  stages() {
    // Two downstreams have lanes of the same names.
    const owner = (labels) => place(labels, ["stage"]);
    const busy = new Map(this.#named("lane").map(({ labels, of }) => [owner(labels), of["busy-cycles"]?.change ?? 0]));
    const all = [];
    for (const { name, labels, of } of this.sets) {
      if (name === "stage") {
        const [packets, made] = [of.processed?.change ?? 0, of.made?.change ?? 0];
        const { cycles, p99 } = this.#taken.get(JSON.stringify(labels)) ?? { cycles: null, p99: null };
        const part = cycles === null ? null : share(cycles * (packets + made), busy.get(owner(labels)) ?? 0);
        // If the lane was interrupted in one of the few bursts that were timed, they seem to take more than there is.
        all.push({
          lane: owner(labels),
          stage: labels.stage,
          isStep: false,
          name: place(labels),
          packets,
          all: of.processed?.value ?? 0,
          made,
          cycles,
          p99,
          share: part === null ? null : Math.min(part, 1),
        });
      }
      for (const [word, { change }] of Object.entries(of)) {
        const step = word.endsWith("-cycles") ? word.slice(0, -"-cycles".length) : "";
        const packets = of[`${step}-packets`];
        if (!packets) continue;
        all.push({
          lane: owner(labels),
          stage: labels.stage,
          isStep: true,
          name: `${owner(labels)} ${step}`,
          packets: packets.change,
          all: packets.value,
          made: null,
          cycles: share(change, packets.change),
          p99: null,
          share: share(change, busy.get(owner(labels)) ?? 0),
        });
      }
    }
    return all;
  }

  // What lanes' busy cycles went to: stages with steps, of which either have a share. One that isn't timed itself takes what its steps do.
  flames() {
    const all = this.stages();
    return this.#named("lane").map(({ labels }) => {
      const lane = place(labels);
      const known = all.filter((one) => one.lane === lane && one.share !== null);
      const stages = new Map();
      for (const { stage, isStep, name, share } of known) {
        if (!stages.has(stage)) stages.set(stage, { name: stage, share: null, steps: [] });
        if (isStep) stages.get(stage).steps.push({ name: name.slice(lane.length + 1), share });
        else stages.get(stage).share = share;
      }
      const whole = ({ share, steps }) => share ?? steps.reduce((sum, step) => sum + step.share, 0);
      return { lane, stages: [...stages.values()].map((stage) => ({ ...stage, share: whole(stage) })) };
    });
  }

  // Packets that came in by a node of a lane with these labels; null if no counter says that, or several do.
  #given(lane, node) {
    const [[kind, name]] = Object.entries(node);
    const labels = { ...lane, [kind]: name };
    const sets = this.#named(kind).filter((set) => isSame(set.labels, labels));
    return sets.length === 1 ? (sets[0].of[GIVEN[kind]]?.change ?? null) : null;
  }

  // Packets along each way of a graph; null where no counter says that. Whatever comes in by an input goes the one way from there; and
  // what a stage or an output was given came by the one way there is to it.
  along({ labels, nodes, ways }) {
    const given = nodes.map((node) => this.#given(labels, node));
    return ways.map(({ from, to }) => {
      if (nodes[from].input !== undefined) return given[from];
      return ways.filter((way) => way.to === to).length === 1 ? given[to] : null;
    });
  }

  // What was dropped, the fastest first.
  drops() {
    const drops = this.values.filter((value) => value.reason !== undefined && value.value > 0);
    const shown = drops.map(({ key, reason, labels, set, change, value }) => ({
      key,
      reason,
      severity: this.now.reasons[reason]?.severity ?? "",
      help: this.now.reasons[reason]?.help ?? "",
      place: place(labels, ["driver", "direction"]) || set,
      change,
      all: value,
    }));
    return shown.sort((one, other) => other.change - one.change || other.all - one.all);
  }

  // Each pool with all that is counted of it.
  pools() {
    return this.#named("pool").map(({ labels, of }) => ({ name: place(labels), of }));
  }
}
