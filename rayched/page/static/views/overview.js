// Who leads, how full the room is, what is tried and what waits, on one time axis.

import { LAYER_COLOURS, LEFT, atX, drawLines, drawStack, drawTerms } from "../chart.js";
import { el, replace, setText } from "../dom.js";
import { Figure } from "../figure.js";
import { LATENCIES, QUEUES, RESULTS, attemptsOf, fencedByEpoch, latencyOf, pauses, pendingOf } from "../series.js";
import { VirtualTable } from "../table.js";
import { age, amount, clockTime, share } from "../text.js";

const SPANS = [["5 min", 300], ["1 h", 3600]];
const RESOURCES = ["cpu", "memory", "pods"];
const TILES = ["Leader", "Epoch", "Leads since", "Nodes ready", "Pods placed", "Pending", "Bindings/s", "Wait, p99"];

export class OverviewView {
  command = "rayched leader; rayched status";
  #seconds = 300;
  #cursor = null;

  constructor(root, state) {
    this.state = state;
    this.tiles = new Map(TILES.map((name) => [name, el("dd", {}, "...")]));
    const tiles = el("dl", { class: "tiles" }, TILES.map((name) => el("div", {}, el("dt", {}, name), this.tiles.get(name))));
    this.spans = SPANS.map(([text, seconds]) => el("button", { type: "button", "aria-pressed": String(seconds === this.#seconds), onclick: () => this.#choose(seconds) }, text));
    this.terms = new Figure("Who led", ["holder", "epoch", "since", "until", "pause after, ms", "writes fenced"], () => this.#termRows());
    this.attempts = new Figure("Attempts a second", ["time", ...RESULTS], () => this.#sampleRows(attemptsOf));
    this.pending = new Figure("Pods that wait", ["time", ...QUEUES], () => this.#sampleRows(pendingOf));
    this.latency = new Figure("Latency, ms", ["time", ...LATENCIES], () => this.#sampleRows(latencyOf));
    legend(this.attempts.legend, RESULTS);
    legend(this.latency.legend, LATENCIES);
    legend(this.pending.legend, QUEUES);
    this.zones = el("div", { class: "zones" });
    this.room = new VirtualTable(["zone", "resource", "requested", "of", "not usable"], "Room by zone");
    const room = el("section", { class: "figure" }, el("h2", {}, "Room by zone"), legend(el("p", { class: "legend" }), ["used", "free", "not usable"], ["used", "free", "unusable"]), this.zones, el("details", {}, el("summary", {}, "table"), this.room.element));
    root.append(tiles, el("p", { class: "choices", role: "group", "aria-label": "Time" }, this.spans), this.terms.element, this.attempts.element, this.pending.element, this.latency.element, room);
    this.figures = [this.terms, this.attempts, this.pending, this.latency];
    for (const figure of this.figures) {
      figure.canvas.addEventListener("pointermove", (event) => this.#point(event.offsetX));
      figure.canvas.addEventListener("pointerleave", () => this.#point(null));
    }
  }

  close() {
    this.figures.forEach((figure) => figure.close());
  }

  update(topic) {
    if (topic === "usage" || topic === "events") return;
    this.#tell();
    this.#draw();
    if (topic === "all" || topic === "status") this.#drawRoom();
  }

  #choose(seconds) {
    this.#seconds = seconds;
    this.spans.forEach((button, number) => button.setAttribute("aria-pressed", String(SPANS[number][1] === seconds)));
    this.#draw();
  }

  #point(x) {
    this.#cursor = x !== null && x >= LEFT ? x : null;
    this.#draw();
  }

  #tell() {
    const { status, terms } = this.state;
    const last = terms.at(-1);
    const leads = last && last.until === null ? last : null;
    const tell = (name, text) => setText(this.tiles.get(name), text);
    tell("Leader", leads ? leads.holder : last ? "nobody" : "...");
    tell("Epoch", leads ? leads.epoch : "-");
    tell("Leads since", leads ? age(this.state.now() - leads.since) : "-");
    if (!status) return;
    const nodes = status.zones.reduce((sum, zone) => sum + zone.nodes, 0);
    const ready = status.zones.reduce((sum, zone) => sum + zone.ready, 0);
    tell("Nodes ready", `${ready} of ${nodes}`);
    tell("Pods placed", status.zones.reduce((sum, zone) => sum + zone.used[2], 0));
    tell("Pending", Object.values(status.pending).reduce((sum, count) => sum + count, 0));
    const rate = status.sample?.[1];
    tell("Bindings/s", rate === null || rate === undefined ? "..." : rate.toFixed(rate < 10 ? 1 : 0));
    const waits = this.state.samples.over(60, this.state.now()).map((sample) => latencyOf(sample)[LATENCIES.indexOf("wait p99")]).filter((value) => value !== null);
    tell("Wait, p99", waits.length ? `${waits.at(-1).toFixed(1)} ms` : "-");
  }

  #samples() {
    return this.state.samples.over(this.#seconds, this.state.now());
  }

  #draw() {
    const samples = this.#samples();
    const times = samples.map((sample) => sample[0]);
    const span = { now: this.state.now(), seconds: this.#seconds, cursor: this.#cursor };
    drawTerms(this.terms.canvas, this.state.terms, this.state.fenced, { ...span, width: this.terms.width });
    drawStack(this.attempts.canvas, times, samples.map(attemptsOf), { ...span, width: this.attempts.width });
    drawStack(this.pending.canvas, times, samples.map(pendingOf), { ...span, width: this.pending.width });
    drawLines(this.latency.canvas, times, samples.map(latencyOf), { ...span, width: this.latency.width });
    this.#tellCursor(samples, { ...span, width: this.attempts.width });
    this.figures.forEach((figure) => figure.refresh());
  }

  // What the samples under the cross-hair say stands in the legends.
  #tellCursor(samples, span) {
    let near = null;
    if (this.#cursor !== null) {
      for (const sample of samples) {
        if (near === null || Math.abs(atX(sample[0], span) - this.#cursor) < Math.abs(atX(near[0], span) - this.#cursor)) near = sample;
      }
    }
    values(this.attempts.legend, near && attemptsOf(near).map((value) => (value === null ? "?" : value.toFixed(1))));
    values(this.pending.legend, near && pendingOf(near));
    values(this.latency.legend, near && latencyOf(near).map((value) => (value === null ? "-" : value.toFixed(1))));
  }

  #termRows() {
    const { terms, fenced } = this.state;
    const refused = fencedByEpoch(terms, fenced);
    const after = new Map(pauses(terms).map((pause) => [pause.after, pause.until === null ? null : Math.round((pause.until - pause.from) * 1000)]));
    return terms.map((term) => [term.holder, term.epoch, clockTime(term.since), term.until === null ? "leads" : clockTime(term.until), after.get(term.epoch) ?? null, refused.get(term.epoch) ?? 0]);
  }

  #sampleRows(of) {
    return this.#samples().map((sample) => [clockTime(sample[0]), ...of(sample).map((value) => (value === null ? null : Number(value.toFixed(2))))]);
  }

  #drawRoom() {
    const zones = this.state.status?.zones ?? [];
    replace(this.zones, zones.map((zone) => el("div", { class: "zone" }, el("h3", {}, zone.zone || "no zone"), RESOURCES.map((name, at) => bar(name, zone.used[at], zone.offered[at], zone.unusable[at])))));
    this.room.show(zones.flatMap((zone) => RESOURCES.map((name, at) => [zone.zone || "no zone", name, ...[zone.used, zone.offered, zone.unusable].map((amounts) => amount(name, amounts[at]))])));
  }
}

function bar(resource, used, offered, unusable) {
  const part = (amounts) => `${offered ? Math.min(100, (amounts * 100) / offered) : 0}%`;
  const [taken, lost] = [el("span", { class: "used" }), el("span", { class: "unusable" })];
  taken.style.width = part(used);
  lost.style.width = part(unusable);
  const thousandths = offered ? Math.trunc((used * 1000) / offered) : 0;
  const words = `${amount(resource, used)} of ${amount(resource, offered)}`;
  return el("p", { class: "bar", title: `${words}, ${amount(resource, unusable)} not usable` }, el("span", { class: "name" }, resource), el("span", { class: "track" }, taken, lost), el("span", { class: "share" }, `${share(thousandths)} of ${amount(resource, offered)}`));
}

function legend(place, names, colours = LAYER_COLOURS) {
  replace(place, names.map((name, number) => el("span", {}, el("i", { class: `swatch ${colours[number]}` }), `${name} `, el("b", {}, ""))));
  return place;
}

function values(place, found) {
  place.querySelectorAll("b").forEach((element, number) => setText(element, found ? found[number] : ""));
}
