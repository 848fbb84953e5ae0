// The nodes as columns: all of them at first, then rows that changed. Pure.

export const SHARES = ["cpu", "memory", "pods"];
export const CORDONED = 1;
export const NOT_READY = 2;
export const TAINTED = 4;
export const TENTHS = 10;

export class NodeColumns {
  names = [];
  zones = [];
  zone = [];
  cpu = [];
  memory = [];
  pods = [];
  state = [];
  // Of extended resources, by name; -1 where a node offers none.
  extended = {};
  // Those of which shares are known.
  resources = [...SHARES];
  revision = 0;
  #rowOf = new Map();

  get length() {
    return this.names.length;
  }

  // Takes a message of the stream. Gives the rows that changed; null: all did, rows may have other numbers.
  take(message) {
    this.revision = message.revision;
    if (message.full) {
      for (const name of ["names", "zones", "zone", "state", "extended", ...SHARES]) this[name] = message[name];
      this.resources = [...SHARES, ...Object.keys(this.extended)];
      this.#rowOf = new Map(this.names.map((name, row) => [name, row]));
      return null;
    }
    const others = Object.values(this.extended);
    for (const [row, cpu, memory, pods, state, ...extended] of message.rows) {
      this.cpu[row] = cpu;
      this.memory[row] = memory;
      this.pods[row] = pods;
      this.state[row] = state;
      extended.forEach((value, place) => (others[place][row] = value));
    }
    return message.rows.map(([row]) => row);
  }

  rowOf(name) {
    return this.#rowOf.get(name);
  }

  // Of a resource; undefined: no node is known to offer it.
  column(name) {
    return SHARES.includes(name) ? this[name] : this.extended[name];
  }

  // Thousandths of a resource, -1 where the node has none; "fullest": of the one of which there is most taken.
  value(row, by) {
    if (by !== "fullest") return this.column(by)?.[row] ?? -1;
    let most = -1;
    for (const name of this.resources) most = Math.max(most, this.value(row, name));
    return most;
  }

  // Rows of each zone, by name, or those with most taken first.
  rowsByZone(by, order) {
    const found = this.zones.map(() => []);
    for (let row = 0; row < this.length; row++) found[this.zone[row]].push(row);
    if (order === "use") {
      for (const rows of found) rows.sort((a, b) => this.value(b, by) - this.value(a, by) || a - b);
    }
    return found;
  }

  // How many of these rows have 0-10 %, 10-20 %, ... taken; what is full counts in the last one.
  histogram(rows, by) {
    const found = new Array(TENTHS).fill(0);
    for (const row of rows) {
      const value = this.value(row, by);
      if (value >= 0) found[Math.min(TENTHS - 1, Math.trunc(value / 100))]++;
    }
    return found;
  }
}

export function stateWords(state) {
  const words = [state & NOT_READY ? "NotReady" : "Ready"];
  if (state & CORDONED) words.push("SchedulingDisabled");
  if (state & TAINTED) words.push("tainted");
  return words.join(",");
}
