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
let isFrozen = false;
let answered = null;
let token = null;
let timer = null;

async function ask(path) {
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (answer.status === 401) throw new WantsToken();
  if (!answer.ok) throw new Error(`it says ${answer.status} ${answer.statusText}`);
  return answer;
}

class WantsToken extends Error {}

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
    if (before === null || now.age_ns < before.age_ns) {
      // The first look, or another process has its place.
      before = null;
      sections.clear();
      await name();
    }
    if (!isFrozen) {
      sections.show(new Look(now, before));
      at("age").textContent = `· up ${age(now.age_ns)}`;
    }
    before = now;
    answered = new Date();
    at("login").hidden = true;
    say(isFrozen ? "Frozen" : "Live", null);
  } catch (error) {
    if (error instanceof WantsToken) wantToken();
    else silent(error);
  }
}

function silent(error) {
  const since = answered === null ? "" : ` since ${answered.toLocaleTimeString()}, and what is below is of then`;
  const why = error.name === "TimeoutError" ? "it takes too long" : error.message;
  say("No answer", `The instance doesn't answer${since} (${why}). It has ended, or its machine can't be reached. This page goes on asking.`);
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
  if (document.hidden) return;
  await look();
  clearTimeout(timer);
  if (at("login").hidden) timer = setTimeout(run, BETWEEN_LOOKS);
}

at("freeze").addEventListener("click", () => {
  isFrozen = !isFrozen;
  at("freeze").setAttribute("aria-pressed", String(isFrozen));
});
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value;
  at("login").hidden = true;
  run();
});
document.addEventListener("visibilitychange", run);
run();
