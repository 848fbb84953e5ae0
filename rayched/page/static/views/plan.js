// What if: where pods would go, with what a manifest adds, with more nodes, with nodes emptied.

import { post } from "../api.js";
import { el, replace } from "../dom.js";
import { address } from "../route.js";
import { VirtualTable } from "../table.js";
import { counted } from "../text.js";

export class PlanView {
  command = "rayched plan -f FILE";

  constructor(root) {
    this.manifest = el("textarea", { name: "manifest", rows: "12", "aria-label": "Manifest", placeholder: "apiVersion: v1\nkind: Pod\n..." });
    this.count = el("input", { type: "number", name: "add", value: "0", "aria-label": "Nodes to add" });
    this.like = el("input", { type: "text", name: "like", placeholder: "node-001", "aria-label": "Like which node" });
    this.drain = el("input", { type: "text", name: "drain", placeholder: "node-002 node-003", "aria-label": "Nodes to drain" });
    this.button = el("button", { type: "submit" }, "Plan");
    this.result = el("div", { "aria-live": "polite" });
    root.append(
      el("h2", {}, "What if"),
      el("p", { class: "quiet" }, "Nothing is changed: this is rayched plan on the cluster as it is."),
      el("form", { class: "plan", onsubmit: (event) => this.#submit(event) }, this.manifest, el("p", { class: "choices" }, "add ", this.count, " nodes like ", this.like, " drain ", this.drain, this.button)),
      this.result,
    );
  }

  async #submit(event) {
    event.preventDefault();
    this.button.disabled = true;
    replace(this.result, el("p", { class: "quiet" }, "..."));
    try {
      const drain = this.drain.value.split(/[\s,]+/).filter((name) => name);
      this.#draw(await post("plan", { manifest: this.manifest.value, add_nodes: Number(this.count.value), like: this.like.value.trim(), drain }));
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
    replace(
      this.result,
      plan.notes.map((line) => el("p", { class: "quiet" }, line)),
      el("p", {}, `At revision ${plan.revision}: ${counted(placements, "pod")} would be placed, ${preemptions} would preempt others, ${unplaced} would stay pending.`),
      command,
      placements ? [el("h3", {}, "Placements"), placed.element, el("h3", {}, "By node"), nodes.element] : [],
      preemptions ? [el("h3", {}, "Preemptions"), evicted.element] : [],
      unplaced ? [el("h3", {}, "Would stay pending"), pending.element] : [],
      deleted ? [el("h3", {}, "Would be deleted by their controllers"), gone.element] : [],
    );
  }
}
