// One node: what it offers, what is on it, and how it says it is.

import { ask } from "../api.js";
import { el, replace } from "../dom.js";
import { address } from "../route.js";
import { VirtualTable } from "../table.js";
import { amount, counted } from "../text.js";

export class NodeView {
  constructor(root, state, route) {
    this.state = state;
    this.name = route.parts[0] ?? "";
    this.command = `rayched describe node ${this.name}`;
    this.place = el("div", {}, "...");
    root.append(this.place);
    this.ready = this.#load();
  }

  async #load() {
    try {
      this.#draw(await ask(["node", this.name]));
    } catch (error) {
      replace(this.place, el("h2", {}, this.name), el("p", { class: "error" }, error.message));
    }
  }

  #draw(node) {
    const used = { cpu: 0, memory: 0, pods: node.count };
    for (const pod of node.pods) {
      used.cpu += pod.cpu;
      used.memory += pod.memory;
    }
    const pods = new VirtualTable(["pod", "namespace", "priority", "status", "cpu", "memory"], "Pods");
    pods.show(node.pods.map((pod) => [{ text: pod.name, href: address("pod", [pod.namespace, pod.name]) }, pod.namespace, pod.priority, pod.status, amount("cpu", pod.cpu), amount("memory", pod.memory)]));
    const conditions = new VirtualTable(["condition", "status", "reason", "message"], "Conditions");
    conditions.show(node.conditions.map((one) => [one.type, one.status, one.reason, one.message]));
    const taints = node.taints.map((one) => `${one.key}${one.value ? `=${one.value}` : ""}:${one.effect}`);
    const more = node.count > node.pods.length ? `, of which ${node.pods.length} are shown` : "";
    replace(
      this.place,
      el("h2", {}, node.name, " ", el("span", { class: "quiet" }, node.status)),
      el("dl", { class: "facts" }, [
        ...Object.entries(node.allocatable).map(([name, text]) => [name, `${name in used && !more ? `${amount(name, used[name])} of ` : ""}${text}`]),
        ["taints", taints.join(", ") || "<none>"],
        ["labels", Object.entries(node.labels).map(([key, value]) => `${key}=${value}`).join(", ") || "<none>"],
      ].map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]).flat()),
      el("h3", {}, `${counted(node.count, "pod")}${more}, highest priority first`),
      pods.element,
      el("h3", {}, "Conditions"),
      conditions.element,
    );
  }
}
