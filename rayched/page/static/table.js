// A table of which only the rows in sight are in the page, however many there are.

import { el, append } from "./dom.js";

const ROW_HEIGHT = 26;
const ROWS_MAX = 40;
const BEYOND = 6;
// What is longer may be cut where it stands, and is told whole by the pointer.
const SHORT = 24;

export class VirtualTable {
  #rows = [];
  #from = -1;
  #numeric = [];

  // `headings`: texts. A row is cells: text, number, null, or {text, href, mark, onclick}; `mark` is a class.
  constructor(headings, label) {
    this.headings = headings;
    this.head = el("tr", {});
    this.body = el("tbody");
    this.before = el("tbody", { "aria-hidden": "true" });
    this.after = el("tbody", { "aria-hidden": "true" });
    this.table = el("table", { "aria-label": label }, el("thead", {}, this.head), this.before, this.body, this.after);
    this.empty = el("p", { class: "quiet" }, "nothing");
    this.element = el("div", { class: "table", tabindex: "0", role: "region", "aria-label": label }, this.table, this.empty);
    this.element.addEventListener("scroll", () => this.#draw(false));
    this.#setHead();
  }

  get rows() {
    return this.#rows;
  }

  show(rows, headings = this.headings) {
    if (headings !== this.headings) {
      this.headings = headings;
      this.#setHead();
    }
    this.#rows = rows;
    // A number that is not known stands where the others do.
    this.#numeric = this.headings.map((_, column) => isNumber(rows.find((row) => row[column] !== null && row[column] !== undefined)?.[column]));
    [...this.head.cells].forEach((cell, column) => (cell.className = this.#numeric[column] ? "number" : ""));
    this.empty.hidden = rows.length > 0;
    this.#draw(true);
  }

  // For a spreadsheet: texts and numbers alone.
  plain() {
    return [this.headings, ...this.#rows.map((row) => row.map((cell) => (cell && typeof cell === "object" ? cell.text : cell)))];
  }

  #setHead() {
    this.head.replaceChildren();
    append(this.head, this.headings.map((heading) => el("th", { scope: "col" }, heading)));
  }

  #draw(changed) {
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW_HEIGHT) - BEYOND);
    const from = Math.min(first, Math.max(0, this.#rows.length - ROWS_MAX));
    if (!changed && from === this.#from) return;
    this.#from = from;
    const shownRows = this.#rows.slice(from, from + ROWS_MAX);
    this.body.replaceChildren();
    append(this.body, shownRows.map((row, number) => el("tr", { "aria-rowindex": String(from + number + 2) }, row.map((cell, column) => cellOf(cell, this.#numeric[column])))));
    this.table.setAttribute("aria-rowcount", String(this.#rows.length + 1));
    spacer(this.before, from);
    spacer(this.after, this.#rows.length - from - shownRows.length);
  }
}

function isNumber(cell) {
  return typeof (cell?.text ?? cell) === "number";
}

function spacer(part, rows) {
  part.replaceChildren();
  if (rows > 0) {
    const row = el("tr", {});
    row.style.height = `${rows * ROW_HEIGHT}px`;
    part.append(row);
  }
}

function cellOf(cell, numeric) {
  if (cell === null || cell === undefined) return el("td", { class: numeric ? "quiet number" : "quiet" }, "-");
  if (typeof cell !== "object") return el("td", { class: isNumber(cell) ? "number" : "", title: cell.length > SHORT ? cell : undefined }, cell);
  const classes = [cell.mark ?? "", isNumber(cell) ? "number" : ""].join(" ").trim();
  const inner = cell.href ? el("a", { href: cell.href }, cell.text) : cell.onclick ? button(cell) : cell.text;
  return el("td", { class: classes, title: cell.title }, inner);
}

function button(cell) {
  return el("button", { type: "button", class: "link", onclick: cell.onclick }, cell.text);
}
