// The heat map of all nodes.

import { ask } from "../api.js";
import { el, replace, setText } from "../dom.js";
import { stateWords } from "../columns.js";
import { Figure } from "../figure.js";
import { HeatMap } from "../heatmap.js";
import { address } from "../route.js";
import { counted, share, tenths } from "../text.js";

const ORDERS = [["name", "by name"], ["use", "by use"]];
const SELECTOR = /[=!(),\s]/;

export class NodesView {
  #said = "";

  constructor(root, state, route) {
    this.state = state;
    this.query = { by: "cpu", order: "name", select: "", pod: "", rejected: "", ...route.query };
    this.command = this.query.select && SELECTOR.test(this.query.select) ? `rayched get nodes -l '${this.query.select}'` : "rayched status; rayched get nodes -o wide";
    this.headings = [];
    this.choices = el("span", { role: "group", "aria-label": "by" });
    this.figure = new Figure("Nodes", () => this.headings, () => this.#rows());
    this.map = new HeatMap(this.figure.canvas, state.columns);
    this.map.order = this.query.order;
    this.#drawChoices();
    this.hover = el("output", { class: "hover" }, "");
    this.lit = el("span", { class: "quiet" }, "");
    this.field = el("input", { type: "search", name: "select", value: this.query.select, placeholder: "disktype=ssd, or part of a name", "aria-label": "Label selector, or part of a name" });
    const form = el("form", { class: "choices", onsubmit: (event) => this.#select(event) }, this.choices, el("span", { role: "group", "aria-label": "order" }, this.#links("order", ORDERS)), this.field, this.lit);
    replace(this.figure.legend, el("span", { class: "ramp" }), "empty to full; strokes: cordoned; cross: not ready; corner: tainted");
    root.append(form, this.figure.element, this.hover);
    this.figure.canvas.addEventListener("pointermove", (event) => this.#tellHover(event));
    this.figure.canvas.addEventListener("pointerleave", () => setText(this.hover, ""));
    this.figure.canvas.addEventListener("click", (event) => this.#open(event));
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.fading = setInterval(() => this.map.fade(performance.now() / 1000), 500);
    this.ready = this.#light();
  }

  close() {
    clearInterval(this.fading);
    this.figure.close();
  }

  update(topic, rows) {
    if (topic !== "usage" && topic !== "all") return;
    if (rows) this.map.drawRows(rows, performance.now() / 1000, !this.calm.matches);
    else this.#all();
    this.figure.refresh();
  }

  #all() {
    this.#drawChoices();
    this.map.lit = this.names ? new Set(this.names.map((name) => this.state.columns.rowOf(name)).filter((row) => row !== undefined)) : null;
    if (this.matches) this.map.lit = new Set(this.state.columns.names.flatMap((name, row) => (name.includes(this.matches) ? [row] : [])));
    const said = this.map.lit ? `${counted(this.map.lit.size, "node")} lit${this.#said}` : this.#said;
    setText(this.lit, said);
    this.map.drawAll(this.figure.width);
  }

  // Which nodes are lit: by a selector, which the gateway answers, by a part of their names, or those a pod's decision rejects.
  async #light() {
    const { select, pod, rejected } = this.query;
    try {
      if (pod && rejected !== "") {
        const explained = await ask(["explain", ...pod.split("/")]);
        const reason = explained.rejections[Number(rejected)];
        this.names = reason?.nodes ?? [];
        this.#said = reason ? `: ${reason.plugin}: ${reason.reason}` : ": the decision is another one by now";
      } else if (SELECTOR.test(select)) {
        this.names = (await ask(["select"], { selector: select })).names;
      } else {
        this.matches = select;
      }
    } catch (error) {
      this.#said = error.message;
    }
    this.#all();
  }

  #links(key, choices) {
    return choices.map(([value, text]) => el("a", { class: "choice", href: address("nodes", [], { ...this.query, [key]: value }), "aria-current": (key === "by" ? this.map.by : this.query[key]) === value ? "true" : undefined }, text));
  }

  // What nodes offer decides what they can be coloured by.
  #drawChoices() {
    const { resources } = this.state.columns;
    const headings = ["node", "zone", "state", ...resources];
    // Whoever has the focus on a choice keeps it while nodes come and go.
    if (headings.join() === this.headings.join()) return;
    this.headings = headings;
    const by = [...resources.map((name) => [name, name]), ["fullest", "fullest of them"]];
    this.map.by = by.some(([name]) => name === this.query.by) ? this.query.by : "cpu";
    replace(this.choices, this.#links("by", by));
  }

  #select(event) {
    event.preventDefault();
    location.hash = address("nodes", [], { by: this.query.by, order: this.query.order, select: this.field.value.trim() });
  }

  #rowAt(event) {
    return this.map.layout.rowAt(event.offsetX, event.offsetY);
  }

  #tellHover(event) {
    const row = this.#rowAt(event);
    setText(this.hover, row === undefined ? "" : this.describe(row));
  }

  describe(row) {
    const { columns } = this.state;
    const shares = columns.resources.filter((name) => columns.value(row, name) >= 0).map((name) => `${name} ${share(columns.value(row, name))}`).join(", ");
    return `${columns.names[row]}: ${shares}, ${stateWords(columns.state[row])}`;
  }

  #open(event) {
    const row = this.#rowAt(event);
    if (row !== undefined) location.hash = address("node", [this.state.columns.names[row]]);
  }

  #rows() {
    const { columns } = this.state;
    const rows = columns.rowsByZone(this.map.by, this.map.order).flat();
    return rows.map((row) => [{ text: columns.names[row], href: address("node", [columns.names[row]]) }, columns.zones[columns.zone[row]], stateWords(columns.state[row]), ...columns.resources.map((name) => tenths(columns.value(row, name)))]);
  }
}
