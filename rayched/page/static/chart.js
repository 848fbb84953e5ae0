// Pictures over time: layers that stand on each other, and who led when. All have one time axis and one cross-hair.

import { colour, sized } from "./dom.js";
import { lanes, niceEnd, pauses, stacked } from "./series.js";
import { age, shown } from "./text.js";

export const LEFT = 46;
const BOTTOM = 18;
const TOP = 6;
const LANE = 22;

export const LAYER_COLOURS = ["layer1", "layer2", "layer3", "layer4", "layer5"];

function frame(canvas, width, height) {
  const draw = sized(canvas, width, height);
  draw.font = "11px system-ui, sans-serif";
  draw.textBaseline = "middle";
  return draw;
}

function timeAxis(draw, { width, height, seconds }) {
  draw.fillStyle = colour("quiet");
  draw.strokeStyle = colour("line");
  draw.textAlign = "center";
  for (let part = 0; part <= 5; part++) {
    const x = LEFT + ((width - LEFT - 8) * part) / 5;
    draw.beginPath();
    draw.moveTo(x, TOP);
    draw.lineTo(x, height - BOTTOM);
    draw.stroke();
    const ago = Math.round(seconds * (1 - part / 5));
    draw.fillText(ago ? `-${age(ago)}` : "now", Math.min(x, width - 14), height - BOTTOM / 2);
  }
}

export function atX(time, { now, seconds, width }) {
  return LEFT + (width - LEFT - 8) * (1 - (now - time) / seconds);
}

function crossHair(draw, span, height) {
  if (span.cursor === null) return;
  draw.strokeStyle = colour("ink");
  draw.beginPath();
  draw.moveTo(span.cursor, TOP);
  draw.lineTo(span.cursor, height - BOTTOM);
  draw.stroke();
}

// Axes from 0 to at least the largest of what is known; `atY` places a value on them. `finish` last, over what is drawn.
function axes(canvas, known, span) {
  const height = 120;
  const draw = frame(canvas, span.width, height);
  timeAxis(draw, { ...span, height });
  const end = niceEnd(Math.max(0, ...known.filter((value) => value !== null)));
  const atY = (value) => height - BOTTOM - ((height - BOTTOM - TOP) * value) / end;
  const finish = () => {
    draw.fillStyle = colour("quiet");
    draw.textAlign = "right";
    draw.fillText(String(end), LEFT - 6, TOP + 6);
    draw.fillText("0", LEFT - 6, height - BOTTOM - 6);
    crossHair(draw, span, height);
  };
  return { draw, atY, finish };
}

// `values`: [sample][line], `times` of the samples; `span`: now, seconds, width, cursor. A value without neighbours is a dot.
export function drawLines(canvas, times, values, span) {
  const { draw, atY, finish } = axes(canvas, values.flat(), span);
  (values[0] ?? []).forEach((_, line) => {
    const those = values.map((row) => row[line]);
    draw.strokeStyle = draw.fillStyle = colour(LAYER_COLOURS[line]);
    for (const [from, to] of runs(those)) {
      draw.beginPath();
      for (let at = from; at <= to; at++) draw.lineTo(atX(times[at], span), atY(those[at]));
      draw.stroke();
      if (from === to) draw.fillRect(atX(times[from], span) - 1, atY(those[from]) - 1, 3, 3);
    }
  });
  finish();
}

// The same of layers that stand on each other.
export function drawStack(canvas, times, values, span) {
  const edges = stacked(values);
  const { draw, atY, finish } = axes(canvas, edges.at(-1) ?? [], span);
  for (let layer = edges.length - 1; layer >= 0; layer--) {
    draw.fillStyle = colour(LAYER_COLOURS[layer]);
    for (const [from, to] of runs(edges[layer])) {
      draw.beginPath();
      draw.moveTo(atX(times[from], span), atY(0));
      for (let at = from; at <= to; at++) draw.lineTo(atX(times[at], span), atY(edges[layer][at]));
      draw.lineTo(atX(times[to], span), atY(0));
      draw.fill();
    }
  }
  finish();
}

// From and to of what is known without a gap.
function runs(values) {
  const found = [];
  let from = -1;
  values.forEach((value, at) => {
    if (value !== null && from < 0) from = at;
    if (from >= 0 && (value === null || at === values.length - 1)) {
      found.push([from, value === null ? at - 1 : at]);
      from = -1;
    }
  });
  return found;
}

// A lane a replica, a bar a term, a pause between two terms with its milliseconds, a tick for writes that were fenced.
export function drawTerms(canvas, terms, fenced, span) {
  const holders = lanes(terms);
  const height = TOP + BOTTOM + LANE * Math.max(1, holders.length);
  const draw = frame(canvas, span.width, height);
  timeAxis(draw, { ...span, height });
  const lane = (holder) => TOP + holders.indexOf(holder) * LANE;
  const inside = (time) => Math.max(LEFT, Math.min(span.width - 8, atX(time, span)));
  for (const term of terms) {
    const [from, to] = [inside(term.since), inside(term.until ?? span.now)];
    if (to <= LEFT) continue;
    draw.fillStyle = colour("layer1");
    draw.fillRect(from, lane(term.holder) + 2, Math.max(2, to - from), LANE - 4);
    draw.fillStyle = colour("paper");
    draw.textAlign = "left";
    draw.save();
    draw.beginPath();
    draw.rect(from, lane(term.holder), Math.max(2, to - from), LANE);
    draw.clip();
    draw.fillText(shown(`${term.holder}  epoch ${term.epoch}`), from + 6, lane(term.holder) + LANE / 2);
    draw.restore();
  }
  for (const pause of pauses(terms)) {
    const [from, to] = [inside(pause.from), inside(pause.until ?? span.now)];
    if (to <= LEFT) continue;
    draw.fillStyle = colour("bad");
    draw.fillRect(from - 1, TOP, Math.max(3, to - from), height - TOP - BOTTOM);
    const text = pause.until === null ? "nobody leads" : `${Math.round((pause.until - pause.from) * 1000)} ms`;
    draw.fillStyle = colour("ink");
    draw.textAlign = from > span.width / 2 ? "right" : "left";
    draw.fillText(text, from > span.width / 2 ? from - 4 : to + 4, TOP + 6);
  }
  draw.fillStyle = colour("ink");
  for (const [time, replica] of fenced) {
    const x = atX(time, span);
    if (x >= LEFT && holders.includes(replica)) draw.fillRect(x - 1, lane(replica), 2, LANE);
  }
  crossHair(draw, span, height);
}
