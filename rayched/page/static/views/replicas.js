// Each replica that the gateway knows, as it says of itself.

import { ask } from "../api.js";
import { el, setText } from "../dom.js";
import { VirtualTable } from "../table.js";
import { age, amount } from "../text.js";

const POLL_MS = 3_000;

export class ReplicasView {
  command = "rayched leader -o json";
  #closed = false;
  #timer = null;

  constructor(root, state) {
    this.state = state;
    this.note = el("p", { class: "quiet" }, "...");
    this.table = new VirtualTable(["address", "replica", "role", "epoch it sees", "version", "answered in", "revisions behind", "memory", "certificate", "writes fenced", "problems"], "Replicas");
    root.append(el("h2", {}, "Replicas"), this.note, this.table.element);
    this.ready = this.#poll();
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  async #poll() {
    try {
      const { replicas } = await ask(["replicas"]);
      if (this.#closed) return;
      setText(this.note, "as each says of itself");
      this.table.show(replicas.map(rowOf));
    } catch (error) {
      setText(this.note, error.message);
    }
    if (!this.#closed) this.#timer = setTimeout(() => this.#poll(), POLL_MS);
  }
}

export function rowOf(one) {
  if (one.error) return [one.endpoint, null, { text: "does not answer", mark: "warning" }, null, null, null, null, null, null, null, one.error];
  // One of a version before these were told has none of them.
  const state = "revision" in one ? [one.lag, one.memory ? amount("memory", one.memory) : null, certificate(one.certificate_seconds_left), one.fenced] : [null, null, null, null];
  return [one.endpoint, one.name, one.role, one.epoch, one.version, `${one.milliseconds} ms`, ...state, one.problems.join("; ") || null];
}

function certificate(left) {
  if (left === null) return "none";
  return left > 0 ? `${age(left)} left` : { text: `expired ${age(-left)} ago`, mark: "warning" };
}
