// One pod: when what happened, and the decision: every node's part in it.

import { ask } from "../api.js";
import { colour, el, replace, sized } from "../dom.js";
import { css, heat, ink } from "../colours.js";
import { dots, moments, segments, thenAndNow } from "../decision.js";
import { Figure } from "../figure.js";
import { address } from "../route.js";
import { VirtualTable } from "../table.js";
import { clockTime, counted } from "../text.js";

export class PodView {
  figures = [];

  constructor(root, state, route) {
    this.state = state;
    [this.namespace = "", this.name = ""] = route.parts;
    this.command = `rayched describe pod ${this.name} -n ${this.namespace}; rayched explain ${this.name} -n ${this.namespace}`;
    this.life = el("div", {}, "...");
    this.decision = el("div", {});
    root.append(el("h2", {}, `${this.namespace}/${this.name}`), this.life, this.decision);
    this.ready = Promise.all([this.#load(["pod"], this.life, (pod) => this.#drawLife(pod)), this.#load(["explain"], this.decision, (found) => this.#drawDecision(found))]);
  }

  close() {
    this.figures.forEach((figure) => figure.close());
  }

  update(topic) {
    if (topic === "all") this.redraw?.();
  }

  async #load(place, where, draw) {
    try {
      draw(await ask([...place, this.namespace, this.name]));
    } catch (error) {
      replace(where, el("p", { class: "error" }, error.message));
    }
  }

  #drawLife(pod) {
    const facts = [["status", pod.status], ["node", pod.node ? el("a", { href: address("node", [pod.node]) }, pod.node) : "<none>"], ["priority", pod.priority], ["scheduler", pod.scheduler]];
    if (pod.waiting) {
      const { queue, held_by, would_wake, attempts, gating } = pod.waiting;
      facts.push(["queue", `${queue}, after ${counted(attempts, "attempt")}`], ["held by", [...held_by, ...gating].join(", ") || "<none>"], ["tried again when", would_wake.join(", ") || "<none>"]);
    }
    const events = new VirtualTable(["at", "type", "reason", "message", "count"], "Events of the pod");
    events.show(pod.events.map((one) => [clockTime(one.at), one.type, one.reason, one.message, one.count]));
    replace(
      this.life,
      el("dl", { class: "facts" }, facts.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])),
      el("h3", {}, "When"),
      el("ol", { class: "moments" }, moments(pod).map((one) => el("li", {}, el("b", {}, one.what), ` ${clockTime(one.at)} UTC`, el("span", { class: "quiet" }, one.after ? ` ${one.after.toFixed(one.after < 10 ? 1 : 0)} s later` : "")))),
      el("h3", {}, "Events"),
      events.element,
    );
  }

  #drawDecision(found) {
    this.explained = found;
    const parts = [el("h3", {}, "As it was"), this.#past(found), el("h3", {}, "As it would be now"), this.#sentence(found)];
    if (found.totals.length) {
      const figure = new Figure("Totals of feasible nodes", ["total", "nodes", "drawn between"], () => dots(found).map((dot) => [dot.total, dot.count, dot.best ? "yes" : "no"]));
      this.figures.push(figure);
      this.redraw = () => drawDots(figure, found);
      parts.push(figure.element, el("p", {}, best(found)), this.#verdicts(found));
    }
    if (found.rejections.length) {
      const rejections = new VirtualTable(["rejected by", "nodes", "reason", "preemption"], "Rejected nodes");
      rejections.show(found.rejections.map((one, index) => [one.plugin, { text: one.count, href: this.#nodesOf(index) }, one.reason, one.resolvable ? "could help" : "cannot help"]));
      parts.push(el("h3", {}, "Rejected"), rejections.element);
    }
    replace(this.decision, parts);
    this.redraw?.();
  }

  #past(found) {
    const { decision } = found;
    if (!decision) return el("p", { class: "quiet" }, "this leader made no attempt for it, or it was too long ago");
    const drawn = decision.ties > 1 ? `, drawn among ${decision.ties} with the same total (seed hidden)` : "";
    const result = decision.node ? `${decision.node}${drawn}` : decision.message;
    const victims = decision.nominated ? `; ${counted(decision.victims, "pod")} would leave ${decision.nominated}` : "";
    const table = new VirtualTable(["best nodes then", "total then", "total now", ""], "Best nodes then and now");
    table.show(thenAndNow(found).map((one) => [{ text: one.node, href: address("node", [one.node]), mark: one.node === decision.node ? "chosen" : "" }, one.then, one.now, { text: one.differs ? "differs" : "", mark: one.differs ? "differs" : "" }]));
    const rejected = Object.entries(decision.rejections).sort((a, b) => b[1] - a[1]).map(([plugin, count]) => `${plugin} ${counted(count, "node")}`);
    return el("div", {}, el("p", {}, `${result}${victims}`), el("p", { class: "quiet" }, `decision ${decision.number}, revision ${decision.revision}, ${(decision.seconds * 1000).toFixed(2)} ms${rejected.length ? `; rejected by ${rejected.join(", ")}` : ""}`), decision.best.length ? table.element : null);
  }

  #sentence(found) {
    const parts = segments(found);
    const bars = parts.map((one) => {
      const inner = el(one.kind === "rejected" ? "a" : "span", { class: `segment ${one.kind}`, title: `${one.label}: ${one.count}`, href: one.kind === "rejected" ? this.#nodesOf(one.index) : undefined }, `${one.count} ${one.label}`);
      inner.style.flexGrow = String(Math.max(one.count, found.nodes / 20));
      return inner;
    });
    return el("div", {}, el("p", {}, `of ${counted(found.nodes, "node")}, as of revision ${found.revision}:`), el("div", { class: "segments" }, bars));
  }

  #nodesOf(index) {
    return address("nodes", [], { pod: `${this.namespace}/${this.name}`, rejected: String(index) });
  }

  #verdicts(found) {
    const plugins = [...new Set(found.verdicts.flatMap((one) => one.scores.map(([plugin]) => plugin)))];
    const most = Math.max(1, ...found.verdicts.flatMap((one) => one.scores.map(([, , , weighted]) => weighted)));
    const table = new VirtualTable(["node", "total", ...plugins], "Scores");
    const rows = [...found.verdicts].sort((a, b) => Number(b.node === found.node) - Number(a.node === found.node));
    table.show(
      rows.map((one) => {
        const by = new Map(one.scores.map(([plugin, weight, normalized, weighted]) => [plugin, { text: weighted, title: `${normalized} x ${weight}`, mark: `heat${Math.round((weighted / most) * 9)}` }]));
        return [{ text: one.node, href: address("node", [one.node]), mark: one.node === found.node ? "chosen" : "" }, one.total, ...plugins.map((plugin) => by.get(plugin) ?? null)];
      }),
    );
    const more = found.feasible > found.verdicts.length ? `, the best ${found.verdicts.length} of ${found.feasible}` : "";
    return el("div", {}, el("p", { class: "quiet" }, `points: scores (0 to 100) times weights${more}`), table.element);
  }
}

function best(found) {
  const chosen = found.node ? `; the pod's own, ${found.node}, is ringed` : "";
  return `${counted(found.ties, "node")} with the highest total, in drawing order: ${found.best.slice(0, 10).join(", ")}${found.ties > 10 ? ", ..." : ""}${chosen}`;
}

const DOT = 4;
const HIGH = 120;

// Dots stand on each other where nodes have the same total; more than fit are told by their number.
function drawDots(figure, found) {
  const width = figure.width;
  const draw = sized(figure.canvas, width, HIGH + 24);
  const all = dots(found);
  const [highest, lowest] = [all[0].total, all.at(-1).total];
  const x = (total) => 20 + (width - 40) * (highest === lowest ? 1 : (total - lowest) / (highest - lowest));
  const fits = Math.floor((HIGH - 18) / (DOT * 2));
  const own = found.verdicts.find((one) => one.node === found.node)?.total;
  draw.font = "11px system-ui, sans-serif";
  draw.textAlign = "center";
  // Numbers that would run into each other are in the table.
  let free = Infinity;
  for (const dot of all) {
    const rgb = heat(dot.best ? 1000 : 400);
    draw.fillStyle = css(rgb);
    draw.strokeStyle = ink(rgb) === "#000" ? colour("ink") : colour("quiet");
    for (let number = 0; number < Math.min(dot.count, fits); number++) {
      draw.beginPath();
      draw.arc(x(dot.total), HIGH - DOT - number * DOT * 2, DOT - 0.5, 0, 2 * Math.PI);
      draw.fill();
    }
    const half = draw.measureText(String(dot.count)).width / 2 + 2;
    if (dot.count > fits && x(dot.total) + half <= free) {
      draw.fillStyle = colour("ink");
      draw.fillText(String(dot.count), x(dot.total), 10);
      free = x(dot.total) - half;
    }
    if (dot.total === own) {
      draw.strokeStyle = colour("bad");
      draw.lineWidth = 2;
      draw.beginPath();
      draw.arc(x(dot.total), HIGH - DOT, DOT + 2, 0, 2 * Math.PI);
      draw.stroke();
    }
  }
  draw.fillStyle = colour("quiet");
  draw.fillRect(20, HIGH + 2, width - 40, 1);
  draw.fillText(String(lowest), x(lowest), HIGH + 16);
  if (highest !== lowest) draw.fillText(String(highest), x(highest), HIGH + 16);
  figure.refresh();
}
