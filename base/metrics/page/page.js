// Asks the instance once a second what it has counted, and shows that.

import { Look } from "./rates.js";
import { Sections } from "./sections.js";
import { age } from "./text.js";

const BETWEEN_LOOKS = 1000;
// An instance that takes longer doesn't answer.
const PATIENCE = 5000;

const at = (id) => document.getElementById(id);
const sections = new Sections();
let before = null;
// What packets last took in stages.
let taken = new Map();
// What leads where in the instance.
let graphs = null;
// How its buffers lie over the sets of a cache.
let layout = null;
// When the instance began, by this machine's clock, in milliseconds.
let began = 0;
// Another instance has its place, and what is shown is still the former's.
let isAnother = false;
let isLooking = false;
let isFrozen = false;
let answered = null;
let token = null;
let timer = null;

async function ask(path) {
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  let answer;
  try {
    answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  } catch (error) {
    throw new NoAnswer(error.name === "TimeoutError" ? "it takes too long" : error.message);
  }
  if (answer.status === 401) throw new WantsToken();
  if (!answer.ok) throw new Error(`it says ${answer.status} ${answer.statusText}`);
  return answer;
}

class WantsToken extends Error {}
class NoAnswer extends Error {}

// Who this is: no counter says that, but the metrics do.
async function name() {
  const text = await (await ask("metrics")).text();
  const [, kind, version] = /^warmlane_build_info\{kind="([^"]*)",version="([^"]*)"\}/m.exec(text) ?? [];
  at("kind").textContent = kind ? `${kind} ${version}` : "";
  document.title = kind ? `${kind} – Warmlane` : "Warmlane";
}

function say(live, trouble) {
  // Written only when it changes, as it is read aloud.
  if (at("live").textContent !== live) at("live").textContent = live;
  at("trouble").hidden = trouble === null;
  if (trouble !== null && at("trouble").textContent !== trouble) at("trouble").textContent = trouble;
  document.body.classList.toggle("is-old", trouble !== null);
}

async function look() {
  try {
    const now = await (await ask("stats.json")).json();
    const beginning = Date.now() - now.age_ns / 1e6;
    if (before === null || now.age_ns < before.age_ns || beginning - began > 2 * PATIENCE) {
      // The first look, or another process has its place. A clock that is set costs the charts and what stages last took.
      before = null;
      taken = new Map();
      isAnother = true;
      await name();
      [graphs, layout] = await Promise.all(["graph.json", "layout.json"].map(async (path) => (await ask(path)).json()));
    }
    began = beginning;
    if (!isFrozen) {
      if (isAnother) sections.begin(graphs, layout);
      isAnother = false;
      sections.show(new Look(now, before, taken));
      at("age").textContent = `· up ${age(now.age_ns)}`;
    }
    before = now;
    answered = new Date();
    at("login").hidden = true;
    say(isFrozen ? "Frozen" : "Live", null);
  } catch (error) {
    if (error instanceof WantsToken) wantToken();
    else if (error instanceof NoAnswer) silent(error);
    else say("Trouble", `What came can't be shown (${error.message}). This page goes on asking.`);
  }
}

function silent(error) {
  const since = answered === null ? "" : ` since ${answered.toLocaleTimeString()}, and what is below is of then`;
  say("No answer", `The instance doesn't answer${since} (${error.message}). It has ended, or its machine can't be reached. This page goes on asking.`);
}

function wantToken() {
  const isShown = !at("login").hidden;
  at("login").hidden = false;
  if (!isShown) at("token").focus();
  say("Waiting for the token", token === null ? null : "That is not the token of this instance.");
}

// Looks never overlap, and nobody looks while nobody sees the page.
async function run() {
  clearTimeout(timer);
  if (document.hidden || isLooking) return;
  isLooking = true;
  await look();
  isLooking = false;
  clearTimeout(timer);
  if (at("login").hidden) timer = setTimeout(run, BETWEEN_LOOKS);
}

at("freeze").addEventListener("click", () => {
  isFrozen = !isFrozen;
  at("freeze").setAttribute("aria-pressed", String(isFrozen));
});
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  // Others can't be sent in a header, and are none.
  token = at("token").value.replace(/[^\x21-\x7e]/g, "");
  at("login").hidden = true;
  run();
});
document.addEventListener("visibilitychange", run);
run();
