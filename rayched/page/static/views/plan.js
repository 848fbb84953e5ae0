// What if: where pods would go, with what a manifest adds, more nodes, nodes emptied, another configuration; the heat map before
// and after.

import { post } from "../api.js";
import { el, replace, setText } from "../dom.js";
import { Figure } from "../figure.js";
import { HeatMap } from "../heatmap.js";
import { PlannedColumns } from "../planned.js";
import { address } from "../route.js";
import { VirtualTable } from "../table.js";
import { counted, share, tenths } from "../text.js";

export class PlanView {
  command = "rayched plan -f FILE";

  outlook = null;

  constructor(root, state) {
    this.state = state;
    this.manifest = el("textarea", { name: "manifest", rows: "12", "aria-label": "Manifest", placeholder: "apiVersion: v1\nkind: Pod\n..." });
    this.count = el("input", { type: "number", name: "add", value: "0", "aria-label": "Nodes to add" });
    this.like = el("input", { type: "text", name: "like", placeholder: "node-001", "aria-label": "Like which node" });
    this.drain = el("input", { type: "text", name: "drain", placeholder: "node-002 node-003", "aria-label": "Nodes to drain" });
    this.configuration = el("textarea", { name: "configuration", rows: "8", "aria-label": "Configuration", placeholder: "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n..." });
    this.button = el("button", { type: "submit" }, "Plan");
    this.result = el("div", { "aria-live": "polite" });
    root.append(
      el("h2", {}, "What if"),
      el("p", { class: "quiet" }, "Nothing is changed: this is rayched plan on the cluster as it is."),
      el("form", { class: "plan", onsubmit: (event) => this.#submit(event) }, this.manifest, el("details", {}, el("summary", {}, "another configuration"), this.configuration), el("p", { class: "choices" }, "add ", this.count, " nodes like ", this.like, " drain ", this.drain, this.button)),
      this.result,
    );
  }

  close() {
    this.outlook?.close();
  }

  update(topic) {
    if (topic === "all") this.outlook?.draw();
  }

  async #submit(event) {
    event.preventDefault();
    this.button.disabled = true;
    this.outlook?.close();
    this.outlook = null;
    replace(this.result, el("p", { class: "quiet" }, "..."));
    try {
      const drain = this.drain.value.split(/[\s,]+/).filter((name) => name);
      this.#draw(await post("plan", { manifest: this.manifest.value, add_nodes: Number(this.count.value), like: this.like.value.trim(), drain, configuration: this.configuration.value }));
    } catch (error) {
      replace(this.result, el("p", { class: "error" }, error.message));
    } finally {
      this.button.disabled = false;
    }
  }

  #draw(plan) {
    const command = el("p", {}, "The same: ", el("code", {}, plan.command));
    if (plan.errors) {
      replace(this.result, el("ul", { class: "error" }, plan.errors.map((line) => el("li", {}, line))), command);
      return;
    }
    const { placements, preemptions, unplaced, deleted } = plan.counts;
    const placed = new VirtualTable(["pod", "node"], "Placements");
    placed.show(plan.placements.map((one) => [one.pod, { text: one.node_name, href: address("node", [one.node_name]) }]));
    const evicted = new VirtualTable(["pod", "node", "would preempt"], "Preemptions");
    evicted.show(plan.preemptions.map((one) => [one.pod, one.node_name, one.victims.join(", ")]));
    const pending = new VirtualTable(["pod", "reason"], "Pods that would stay pending");
    pending.show(plan.unplaced.map((one) => [one.pod, one.reason]));
    const gone = new VirtualTable(["pod"], "Pods that their controllers would delete");
    gone.show(plan.deleted.map((pod) => [pod]));
    const nodes = new VirtualTable(["node", "pods that would come"], "By node");
    nodes.show(Object.entries(plan.by_node).sort((a, b) => b[1] - a[1]).map(([name, count]) => [{ text: name, href: address("node", [name]) }, count]));
    if (plan.nodes.length) this.outlook = new NodesOutlook(this.state.columns, plan);
    replace(
      this.result,
      plan.notes.map((line) => el("p", { class: "quiet" }, line)),
      el("p", {}, `At revision ${plan.revision}: ${counted(placements, "pod")} would be placed, ${preemptions} would preempt others, ${unplaced} would stay pending.`),
      command,
      this.outlook?.element ?? [],
      placements ? [el("h3", {}, "Placements"), placed.element, el("h3", {}, "By node"), nodes.element] : [],
      preemptions ? [el("h3", {}, "Preemptions"), evicted.element] : [],
      unplaced ? [el("h3", {}, "Would stay pending"), pending.element] : [],
      deleted ? [el("h3", {}, "Would be deleted by their controllers"), gone.element] : [],
    );
    this.outlook?.draw();
  }
}

// The heat map with a slider from before to after. Nodes that stay as they are fade.
export class NodesOutlook {
  constructor(columns, plan) {
    this.columns = new PlannedColumns(columns, plan);
    this.nodes = plan.nodes;
    this.resources = plan.resources;
    const headings = ["node", "zone", ...plan.resources.flatMap((name) => [`${name} before`, `${name} after`])];
    this.figure = new Figure("Nodes before and after", headings, () => this.#rows());
    this.map = new HeatMap(this.figure.canvas, this.columns);
    this.map.lit = new Set(this.columns.changes.keys());
    this.slider = el("input", { type: "range", name: "after", value: "100", "aria-label": "From before to after", oninput: () => this.move() });
    this.choices = [...this.columns.resources, "fullest"].map((name) => el("button", { type: "button", "aria-pressed": String(name === this.map.by), onclick: () => this.choose(name) }, name));
    this.hover = el("output", { class: "hover" }, "");
    const choices = el("p", { class: "choices", role: "group", "aria-label": "by" }, this.choices);
    this.element = el("div", {}, choices, el("p", { class: "choices" }, "before ", this.slider, " after"), this.figure.element, this.hover);
    this.figure.canvas.addEventListener("pointermove", (event) => setText(this.hover, this.describe(this.map.layout.rowAt(event.offsetX, event.offsetY))));
    this.figure.canvas.addEventListener("pointerleave", () => setText(this.hover, ""));
  }

  close() {
    this.figure.close();
  }

  draw() {
    this.map.drawAll(this.figure.width);
    this.figure.refresh();
  }

  move() {
    this.columns.at = Number(this.slider.value) / 100;
    this.map.drawRows([...this.columns.changes.keys()], 0, false);
  }

  choose(name) {
    this.map.by = name;
    this.choices.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === name)));
    this.draw();
  }

  describe(row) {
    if (row === undefined) return "";
    const change = this.columns.changes.get(row);
    if (!change) return `${this.columns.names[row]}: stays as it is`;
    const told = this.resources.map((name, place) => `${name} ${percent(change.before?.[place])} to ${percent(change.after[place])}`);
    return `${this.columns.names[row]}: ${told.join(", ")}${change.cordoned ? ", cordoned" : ""}`;
  }

  #rows() {
    return this.nodes.map(([name, zone, , before, after]) => [name, zone, ...after.flatMap((value, place) => [tenths(before?.[place]), tenths(value)])]);
  }
}

const percent = (value) => (value === undefined || value < 0 ? "none" : share(value));
