// The page: one stream for all views, one view at a time by the address, keys.

import { el, replace, setText } from "./dom.js";
import { NodeColumns } from "./columns.js";
import { toggleAll } from "./figure.js";
import { address, parse } from "./route.js";
import { Samples } from "./series.js";
import { signInByCode } from "./session.js";
import { Stream } from "./stream.js";
import { clockTime } from "./text.js";
import { EventsView } from "./views/events.js";
import { NodeView } from "./views/node.js";
import { NodesView } from "./views/nodes.js";
import { OverviewView } from "./views/overview.js";
import { PlanView } from "./views/plan.js";
import { PodView } from "./views/pod.js";
import { QueueView } from "./views/queue.js";
import { ReplicasView } from "./views/replicas.js";

const VIEWS = { "": OverviewView, nodes: NodesView, node: NodeView, queue: QueueView, pod: PodView, plan: PlanView, events: EventsView, replicas: ReplicasView };
const LINKS = [["Overview", ""], ["Nodes", "nodes"], ["Queue", "queue"], ["What-if", "plan"], ["Events", "events"], ["Replicas", "replicas"]];
const EVENTS_KEPT = 500;
const RELOADED = "rayched-reloaded-for";

// What is known of the cluster, and how views look at it.
export class PageState {
  columns = new NodeColumns();
  samples = new Samples();
  events = new Map();
  terms = [];
  fenced = [];
  status = null;
  problem = "";
  denied = [];
  since = null;
  #ahead = 0;

  // The server's clock, which the reader's need not agree with.
  now() {
    return Date.now() / 1000 + this.#ahead;
  }

  tells(now) {
    this.#ahead = now - Date.now() / 1000;
  }

  // What the reader may not see, or may not any more.
  forget(topics) {
    this.denied = topics;
    if (topics.includes("usage")) this.columns = new NodeColumns();
    if (topics.includes("status")) {
      this.samples = new Samples();
      this.status = null;
    }
    if (topics.includes("events")) this.events.clear();
    if (topics.includes("leader")) [this.terms, this.fenced] = [[], []];
  }

  // Takes a message of the stream, and gives what views are told of: a topic, and rows that changed.
  take(name, content) {
    if (name === "hello") {
      this.tells(content.now);
      this.since = content.since;
      this.problem = "";
    } else if (name === "history") this.samples.begin(content);
    else if (name === "problem") this.problem = content.text;
    else if (name === "denied") this.forget(content.topics);
    else if (name === "leader") [this.terms, this.fenced] = [content.terms, content.fenced];
    else if (name === "usage") return this.columns.take(content);
    else if (name === "status") {
      this.tells(content.now);
      this.status = content;
      if (content.sample) this.samples.add(content.sample);
    } else if (name === "events") {
      if (content.anew) this.events.clear();
      for (const event of content.events) {
        this.events.delete(event.uid);
        this.events.set(event.uid, event);
      }
      while (this.events.size > EVENTS_KEPT) this.events.delete(this.events.keys().next().value);
    }
    return undefined;
  }
}

const state = new PageState();
const main = document.getElementById("view");
let view = null;

function show() {
  const route = parse(location.hash);
  const Chosen = VIEWS[route.view] ?? OverviewView;
  view?.close?.();
  main.replaceChildren();
  view = new Chosen(main, state, route);
  globalThis.rayched.view = view;
  setText(document.getElementById("command"), view.command);
  for (const link of document.querySelectorAll("#views a")) {
    if (parse(link.getAttribute("href")).view === route.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view.update?.("all", null);
}

function take(name, content) {
  if (name === "hello") renew(content.version);
  const rows = state.take(name, content);
  tellProblem();
  if (name === "denied") show();
  if (name === "hello" && state.since) setText(document.getElementById("since"), `histories since ${clockTime(state.since)} UTC`);
  view?.update?.(name, rows);
}

function down(text) {
  state.problem = text;
  tellProblem();
}

function tellProblem() {
  const place = document.getElementById("problem");
  place.hidden = !state.problem && !state.denied.length;
  const denied = state.denied.length ? `Not shown, as your role does not allow it: ${state.denied.join(", ")}` : "";
  setText(place, state.problem ? `What is shown may be old: ${state.problem}` : denied);
}

// What has come by an address with a code is signed in before it asks for anything.
async function arrive() {
  await signInByCode();
  show();
}

// A page that is older than the gateway loads itself anew, once for each version.
function renew(version) {
  const own = document.querySelector('meta[name="rayched-version"]').content;
  if (version === own || sessionStorage.getItem(RELOADED) === version) return;
  sessionStorage.setItem(RELOADED, version);
  location.reload();
}

const HELP = [["?", "these keys"], ["t", "pictures as tables, and back"], ["1 to 6", "the views"], ["/", "the first field of a view"], ["Esc", "close"]];

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const number = Number(event.key);
  if (event.key === "?") document.getElementById("keys").showModal();
  else if (event.key === "t") toggleAll();
  else if (event.key === "/") {
    const field = main.querySelector("input, textarea");
    if (!field) return;
    field.focus();
  } else if (number >= 1 && number <= LINKS.length) location.hash = address(LINKS[number - 1][1]);
  else return;
  event.preventDefault();
}

const dialog = document.getElementById("keys");
replace(dialog, el("h2", {}, "Keys"), el("dl", {}, HELP.flatMap(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)])), el("button", { type: "button", onclick: () => dialog.close() }, "close"));
replace(document.getElementById("views"), LINKS.map(([text, name]) => el("a", { href: address(name) }, text)));

const stream = new Stream("/ui/stream?topics=usage,status,leader,events", take, down);
globalThis.rayched = { state, view, stream };
addEventListener("hashchange", () => (location.hash.startsWith("#code=") ? arrive() : show()));
addEventListener("keydown", keys);
addEventListener("resize", () => view?.update?.("all", null));
await arrive();
stream.open();
