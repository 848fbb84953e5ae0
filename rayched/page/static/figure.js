// A picture with its table behind it: `t` or its button turns it over, and the table can be copied.

import { el } from "./dom.js";
import { csv } from "./text.js";
import { VirtualTable } from "./table.js";

const figures = new Set();

export class Figure {
  // `rows`: gives the rows of the table of what is drawn now. `headings`: texts, or what gives them.
  constructor(title, headings, rows) {
    this.rows = rows;
    this.headings = typeof headings === "function" ? headings : () => headings;
    this.canvas = el("canvas", { role: "img", "aria-label": title });
    this.table = new VirtualTable(this.headings(), title);
    this.turn = el("button", { type: "button", "aria-pressed": "false", onclick: () => this.toggle() }, "table");
    this.copy = el("button", { type: "button", onclick: () => this.#copy() }, "copy as CSV");
    this.tools = el("span", { class: "tools" }, this.turn, this.copy);
    this.legend = el("p", { class: "legend" });
    this.picture = el("div", { class: "picture" }, this.canvas);
    this.element = el("section", { class: "figure" }, el("h2", {}, title, this.tools), this.legend, this.picture, this.table.element);
    this.table.element.hidden = true;
    figures.add(this);
  }

  get isTable() {
    return !this.table.element.hidden;
  }

  get width() {
    return Math.max(120, Math.floor(this.picture.clientWidth || this.element.clientWidth));
  }

  toggle(to = !this.isTable) {
    this.table.element.hidden = !to;
    this.picture.hidden = to;
    this.turn.setAttribute("aria-pressed", String(to));
    this.turn.textContent = to ? "picture" : "table";
    this.refresh();
  }

  // Whoever draws the picture calls it after: the table shows the same.
  refresh() {
    if (this.isTable) this.table.show(this.rows(), this.headings());
  }

  csv() {
    this.table.show(this.rows(), this.headings());
    return csv(this.table.plain());
  }

  close() {
    figures.delete(this);
  }

  async #copy() {
    const text = this.csv();
    try {
      await navigator.clipboard.writeText(text);
      this.copy.textContent = "copied";
    } catch {
      this.copy.textContent = "not allowed here";
    }
    setTimeout(() => (this.copy.textContent = "copy as CSV"), 1500);
  }
}

export function toggleAll() {
  const all = [...figures];
  const to = all.some((figure) => !figure.isTable);
  all.forEach((figure) => figure.toggle(to));
}
