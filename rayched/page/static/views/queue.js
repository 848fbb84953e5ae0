// What waits, and what holds it.

import { ask } from "../api.js";
import { LAYER_COLOURS, drawStack } from "../chart.js";
import { el, replace, setText } from "../dom.js";
import { Figure } from "../figure.js";
import { QUEUES, pendingOf } from "../series.js";
import { address } from "../route.js";
import { VirtualTable } from "../table.js";
import { age, clockTime, counted } from "../text.js";

const POLL_MS = 2_000;
const SECONDS = 3_600;
const HEADINGS = ["position", "namespace", "pod", "queue", "priority", "attempts", "held by", "since", "tried again in", "tried again when"];

export class QueueView {
  #closed = false;
  #timer = null;

  constructor(root, state, route) {
    this.state = state;
    this.query = { namespace: "", held: "", ...route.query };
    this.command = `rayched queue -o wide${this.query.namespace ? ` -n ${this.query.namespace}` : ""}`;
    this.lanes = new Figure("Pods that wait", ["time", ...QUEUES], () => this.#samples().map((sample) => [clockTime(sample[0]), ...pendingOf(sample)]));
    replace(this.lanes.legend, QUEUES.map((name, number) => el("span", {}, el("i", { class: `swatch ${LAYER_COLOURS[number]}` }), name)));
    this.why = el("div", { class: "why" });
    this.summary = el("p", {}, "...");
    this.table = new VirtualTable(HEADINGS, "The queue");
    this.field = el("input", { type: "search", name: "namespace", value: this.query.namespace, placeholder: "namespace", "aria-label": "Namespace" });
    root.append(
      el("form", { class: "choices", onsubmit: (event) => this.#choose(event) }, this.field),
      el("div", { class: "beside" }, this.lanes.element, el("section", { class: "figure" }, el("h2", {}, "Held by"), this.why)),
      this.summary,
      el("div", { class: "queue" }, this.table.element),
    );
    this.ready = this.#poll();
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.lanes.close();
  }

  update(topic) {
    if (topic !== "status" && topic !== "all" && topic !== "history") return;
    const samples = this.#samples();
    drawStack(this.lanes.canvas, samples.map((sample) => sample[0]), samples.map(pendingOf), { now: this.state.now(), seconds: SECONDS, cursor: null, width: this.lanes.width });
    this.lanes.refresh();
  }

  #samples() {
    return this.state.samples.over(SECONDS, this.state.now());
  }

  #choose(event) {
    event.preventDefault();
    location.hash = address("queue", [], { ...this.query, namespace: this.field.value.trim() });
  }

  async #poll() {
    if (!document.hidden) {
      try {
        this.#draw(await ask(["queue"], { namespace: this.query.namespace }));
      } catch (error) {
        setText(this.summary, error.message);
      }
    }
    if (!this.#closed) this.#timer = setTimeout(() => this.#poll(), POLL_MS);
  }

  #draw(queue) {
    if (this.#closed) return;
    const { held } = this.query;
    const pods = held ? queue.pods.filter((pod) => pod.held_by.includes(held)) : queue.pods;
    const counts = QUEUES.map((name) => `${name} ${queue.counts[name] ?? 0}`).join("   ");
    const filter = held ? `; of the first ${queue.pods.length} those that ${held} holds` : "";
    const more = queue.total > queue.pods.length ? `; the first ${queue.pods.length} of ${queue.total}` : "";
    setText(this.summary, `${counts}${filter || more}`);
    const most = Math.max(1, ...queue.held.map(([, count]) => count));
    replace(this.why, queue.held.length ? queue.held.map(([plugin, count]) => this.#bar(plugin, count, most)) : "nothing holds any pod");
    this.table.show(pods.map(rowOf));
  }

  #bar(plugin, count, most) {
    const filled = el("span", { class: "used" });
    filled.style.width = `${(count * 100) / most}%`;
    const chosen = this.query.held === plugin;
    return el("a", { class: "bar", href: address("queue", [], { ...this.query, held: chosen ? "" : plugin }), "aria-current": chosen ? "true" : undefined }, el("span", { class: "name" }, plugin), el("span", { class: "track" }, filled), el("span", { class: "share" }, counted(count, "pod")));
  }
}

export function rowOf(pod) {
  return [
    pod.position || null,
    pod.namespace,
    { text: pod.name, href: address("pod", [pod.namespace, pod.name]) },
    pod.queue,
    pod.priority,
    pod.attempts,
    pod.held_by.join(", ") || null,
    age(pod.since),
    pod.tried_in === null ? null : age(pod.tried_in),
    pod.would_wake.join(", ") || pod.gating.join(", ") || null,
  ];
}
