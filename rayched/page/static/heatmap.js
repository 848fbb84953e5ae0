// The heat map: a cell a node. States are shapes as well, so that they can be told apart without colours.

import { colour, sized } from "./dom.js";
import { css, heat, ink } from "./colours.js";
import { CORDONED, NOT_READY, TAINTED, TENTHS } from "./columns.js";
import { HEAD, HeatLayout } from "./layout.js";
import { counted, shown } from "./text.js";

const GLOW_SECONDS = 2;
const FADED = 0.15;
const MARKED_MIN = 6;

export class HeatMap {
  layout = new HeatLayout([], 1);
  lit = null;
  #glow = new Map();
  #draw = null;

  constructor(canvas, columns) {
    this.canvas = canvas;
    this.columns = columns;
    this.by = "cpu";
    this.order = "name";
  }

  // All of it. `lit`: a Set of rows, others fade; null: none does.
  drawAll(width) {
    const rowsByZone = this.columns.rowsByZone(this.by, this.order);
    this.layout = new HeatLayout(rowsByZone, width);
    this.#draw = sized(this.canvas, width, Math.max(60, this.layout.height));
    for (const block of this.layout.blocks) {
      this.#drawHead(block);
      for (const row of block.rows) this.#drawCell(row);
    }
  }

  // Some cells; what is above them is drawn anew, too. Ordered by use, cells have other places.
  drawRows(rows, now, glows) {
    if (this.order === "use") return this.drawAll(this.layout.width);
    const zones = new Set(rows.map((row) => this.columns.zone[row]));
    for (const row of rows) {
      if (glows) this.#glow.set(row, now);
      this.#drawCell(row);
    }
    for (const block of this.layout.blocks) if (zones.has(block.zone)) this.#drawHead(block);
  }

  // Takes the glow from what changed long enough ago.
  fade(now) {
    for (const [row, since] of this.#glow) {
      if (now - since < GLOW_SECONDS) continue;
      this.#glow.delete(row);
      this.#drawCell(row);
    }
  }

  // What colour the middle of a node's cell has now.
  pixel(row) {
    const place = this.layout.cell(row);
    if (!place) return null;
    const ratio = globalThis.devicePixelRatio || 1;
    const [x, y] = [place.x + (place.size - 1) / 2, place.y + (place.size - 1) / 2].map((at) => Math.floor(at * ratio));
    return [...this.canvas.getContext("2d").getImageData(x, y, 1, 1).data];
  }

  #drawHead(block) {
    const draw = this.#draw;
    draw.fillStyle = colour("paper");
    draw.fillRect(block.x, block.y, block.width, HEAD);
    draw.fillStyle = colour("ink");
    draw.font = "600 13px system-ui, sans-serif";
    draw.textBaseline = "alphabetic";
    draw.fillText(shown(this.columns.zones[block.zone] || "no zone"), block.x, block.y + 14, block.width * 0.6);
    draw.font = "11px system-ui, sans-serif";
    draw.textAlign = "right";
    draw.fillStyle = colour("quiet");
    draw.fillText(counted(block.rows.length, "node"), block.x + block.width, block.y + 14, block.width * 0.4);
    draw.textAlign = "left";
    const counts = this.columns.histogram(block.rows, this.by);
    const most = Math.max(1, ...counts);
    const across = Math.min(block.width, 220) / TENTHS;
    counts.forEach((count, tenth) => {
      const height = count ? Math.max(1, Math.round((count / most) * 30)) : 0;
      draw.fillStyle = css(heat(tenth * 100 + 50));
      draw.fillRect(block.x + tenth * across, block.y + HEAD - 6 - height, across - 2, height);
    });
    draw.fillStyle = colour("line");
    draw.fillRect(block.x, block.y + HEAD - 6, across * TENTHS, 1);
  }

  #drawCell(row) {
    const place = this.layout.cell(row);
    if (!place) return;
    const draw = this.#draw;
    const { x, y, size } = place;
    const value = this.columns.value(row, this.by);
    // A node that offers none of it has no colour of the scale.
    const fill = value < 0 ? colour("line") : css(heat(value));
    const side = size > 4 ? size - 1 : size;
    draw.clearRect(x, y, size, size);
    draw.globalAlpha = this.lit && !this.lit.has(row) ? FADED : 1;
    draw.fillStyle = fill;
    draw.fillRect(x, y, side, side);
    if (this.columns.state[row]) this.#mark(row, x, y, side, value < 0 ? colour("ink") : ink(heat(value)));
    if (this.#glow.has(row) && size >= MARKED_MIN) {
      draw.strokeStyle = colour("glow");
      draw.lineWidth = 2;
      draw.strokeRect(x + 1, y + 1, side - 2, side - 2);
    }
    draw.globalAlpha = 1;
  }

  // Cordoned: strokes; not ready: a cross; tainted: a corner. The middle keeps its colour where there is room for that.
  #mark(row, x, y, side, stroke) {
    const draw = this.#draw;
    const state = this.columns.state[row];
    draw.strokeStyle = stroke;
    draw.fillStyle = stroke;
    draw.lineWidth = 1;
    draw.beginPath();
    if (state & CORDONED) {
      draw.moveTo(x, y + side / 3);
      draw.lineTo(x + side / 3, y);
      draw.moveTo(x + (side * 2) / 3, y + side);
      draw.lineTo(x + side, y + (side * 2) / 3);
    }
    if (state & NOT_READY) {
      draw.moveTo(x, y);
      draw.lineTo(x + side, y + side);
      draw.moveTo(x + side, y);
      draw.lineTo(x, y + side);
    }
    draw.stroke();
    if (state & TAINTED) {
      draw.beginPath();
      draw.moveTo(x + side, y);
      draw.lineTo(x + side, y + side / 2.5);
      draw.lineTo(x + side - side / 2.5, y);
      draw.fill();
    }
  }
}
