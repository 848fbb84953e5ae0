// What happened, the latest first. It stands still while the pointer is on it.

import { el, setText } from "../dom.js";
import { address } from "../route.js";
import { VirtualTable } from "../table.js";
import { age } from "../text.js";

const SHOWN_MAX = 200;
const FILTERS = ["namespace", "type", "reason", "text"];

export function matching(events, query) {
  const words = query.text.toLowerCase();
  return events.filter(
    (event) =>
      (!query.namespace || event.namespace === query.namespace) &&
      (!query.type || event.type.toLowerCase() === query.type.toLowerCase()) &&
      (!query.reason || event.reason === query.reason) &&
      (!words || `${event.kind}/${event.name} ${event.message}`.toLowerCase().includes(words)),
  );
}

export class EventsView {
  #held = false;

  constructor(root, state, route) {
    this.state = state;
    this.query = Object.fromEntries(FILTERS.map((name) => [name, route.query[name] ?? ""]));
    this.command = this.query.namespace ? `rayched events -n ${this.query.namespace} -w` : "rayched events -A -w";
    this.fields = FILTERS.map((name) => el("input", { type: "search", name, value: this.query[name], placeholder: name, "aria-label": name }));
    this.summary = el("p", { class: "quiet" }, "...");
    this.table = new VirtualTable(["last seen", "type", "reason", "namespace", "object", "message", "count"], "Events");
    this.table.element.addEventListener("pointerenter", () => (this.#held = true));
    this.table.element.addEventListener("pointerleave", () => {
      this.#held = false;
      this.update("all");
    });
    root.append(el("h2", {}, "Events"), el("form", { class: "choices", onsubmit: (event) => this.#filter(event) }, this.fields, el("button", { type: "submit" }, "filter")), this.summary, this.table.element);
  }

  update(topic) {
    if (topic !== "events" && topic !== "all") return;
    const found = matching([...this.state.events.values()].reverse(), this.query);
    setText(this.summary, `${found.length} of the last ${this.state.events.size}${this.#held ? "; held while the pointer is here" : ""}`);
    if (this.#held) return;
    this.table.show(found.slice(0, SHOWN_MAX).map((event) => this.#row(event)));
  }

  #row(event) {
    const name = event.kind === "Pod" ? { text: `Pod/${event.name}`, href: address("pod", [event.namespace, event.name]) } : event.kind === "Node" ? { text: `Node/${event.name}`, href: address("node", [event.name]) } : `${event.kind}/${event.name}`;
    return [age(this.state.now() - event.at), { text: event.type, mark: event.type === "Warning" ? "warning" : "" }, event.reason, event.namespace, name, event.message, event.count];
  }

  #filter(event) {
    event.preventDefault();
    location.hash = address("events", [], Object.fromEntries(this.fields.map((field) => [field.name, field.value.trim()])));
  }
}
