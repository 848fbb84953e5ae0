// The nodes as a plan would leave them, and anything between that and how they are. Pure.

import { CORDONED, NodeColumns, SHARES } from "./columns.js";

export class PlannedColumns extends NodeColumns {
  // Rows that the plan changes, and how: thousandths of `resources` before (null: the node would be new) and after.
  changes = new Map();

  // `columns`: the nodes as they are; `plan`: the gateway's answer, with `resources` and `nodes`.
  constructor(columns, { resources, nodes }) {
    super();
    const { revision, names, zones, zone, state, extended } = columns;
    const all = { full: true, revision, names: [...names], zones: [...zones], zone: [...zone], state: [...state], extended: {} };
    for (const name of SHARES) all[name] = [...columns[name]];
    for (const [name, values] of Object.entries(extended)) all.extended[name] = [...values];
    const rows = nodes.map(([name, inZone]) => columns.rowOf(name) ?? newRow(all, name, inZone));
    this.take(all);
    nodes.forEach(([, , cordoned, before, after], number) => this.changes.set(rows[number], { resources, cordoned, before, after, state: this.state[rows[number]] }));
    this.at = 1;
  }

  // How far: 0 is before, 1 after.
  set at(part) {
    for (const [row, change] of this.changes) {
      this.resources.forEach((name) => (this.column(name)[row] = between(change, change.resources.indexOf(name), part)));
      this.state[row] = part && change.cordoned ? change.state | CORDONED : change.state;
    }
  }
}

function newRow(all, name, zone) {
  const row = all.names.push(name) - 1;
  if (!all.zones.includes(zone)) all.zones.push(zone);
  all.zone.push(all.zones.indexOf(zone));
  all.state.push(0);
  for (const values of [...SHARES.map((resource) => all[resource]), ...Object.values(all.extended)]) values.push(-1);
  return row;
}

// What a node has none of, and what is not there yet, is -1.
function between({ before, after }, place, part) {
  if (place < 0 || (before === null && !part)) return -1;
  const [from, to] = [(before ?? after)[place], after[place]];
  return Math.round(from + (to - from) * part);
}
