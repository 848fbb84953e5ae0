import assert from "node:assert/strict";
import test from "node:test";
import { CORDONED, NOT_READY, NodeColumns, TAINTED, stateWords } from "../../../rayched/page/static/columns.js";
import { HEAD, HeatLayout, cellSize } from "../../../rayched/page/static/layout.js";
import { PlannedColumns } from "../../../rayched/page/static/planned.js";
import { css, heat, ink, luminance } from "../../../rayched/page/static/colours.js";

function columns(nodes, zones = 3) {
  const found = new NodeColumns();
  const rows = Array.from({ length: nodes }, (_, row) => row);
  found.take({
    full: true,
    revision: 1,
    names: rows.map((row) => `node-${String(row).padStart(6, "0")}`),
    zones: Array.from({ length: zones }, (_, zone) => `zone-${zone}`),
    zone: rows.map((row) => row % zones),
    cpu: rows.map((row) => (row * 7) % 1001),
    memory: rows.map((row) => (row * 13) % 1001),
    pods: rows.map(() => 0),
    state: rows.map(() => 0),
    extended: {},
  });
  return found;
}

test("rows that changed take the place of what they were", () => {
  const found = columns(9);
  assert.deepEqual(found.take({ revision: 2, rows: [[4, 100, 200, 300, 5]] }), [4]);
  assert.deepEqual([found.cpu[4], found.memory[4], found.pods[4], found.state[4], found.revision], [100, 200, 300, 5, 2]);
  assert.equal(found.value(4, "fullest"), 300);
});

test("all columns anew give rows other numbers", () => {
  const found = columns(3, 1);
  const again = { full: true, revision: 3, names: ["a", "b"], zones: ["z"], zone: [0, 0], cpu: [1, 2], memory: [0, 0], pods: [0, 0], state: [0, 0], extended: {} };
  assert.equal(found.take(again), null);
  assert.deepEqual([found.rowOf("b"), found.rowOf("node-000000"), found.length], [1, undefined, 2]);
});

test("extended resources are columns, and a node that offers none of one has none of its colour", () => {
  const found = columns(3, 1);
  const shares = { cpu: [1, 2, 3], memory: [0, 0, 0], pods: [0, 0, 0], state: [0, 0, 0] };
  found.take({ full: true, revision: 3, names: ["a", "b", "c"], zones: ["z"], zone: [0, 0, 0], ...shares, extended: { "x.io/gpu": [500, -1, 0], "x.io/nic": [-1, -1, 900] } });
  assert.deepEqual(found.resources, ["cpu", "memory", "pods", "x.io/gpu", "x.io/nic"]);
  assert.deepEqual([0, 1, 2].map((row) => found.value(row, "x.io/gpu")), [500, -1, 0]);
  assert.deepEqual([0, 1, 2].map((row) => found.value(row, "fullest")), [500, 2, 900]);
  assert.deepEqual(found.histogram([0, 1, 2], "x.io/gpu"), [1, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
  found.take({ revision: 4, rows: [[0, 7, 8, 9, 0, 750, -1], [1, 2, 0, 0, 0, -1, -1]] });
  assert.deepEqual([found.value(0, "x.io/gpu"), found.value(0, "x.io/nic"), found.value(1, "x.io/gpu"), found.cpu[0]], [750, -1, -1, 7]);
  assert.equal(found.value(0, "nothing that there is"), -1);
  // Nobody offers them any more.
  found.take({ full: true, revision: 5, names: ["a"], zones: ["z"], zone: [0], cpu: [1], memory: [0], pods: [0], state: [0], extended: {} });
  assert.deepEqual([found.resources.length, found.value(0, "x.io/gpu"), found.value(0, "fullest")], [3, -1, 1]);
});

test("a histogram sums to the rows of its zone, and what is full is in its last tenth", () => {
  const found = columns(5_000);
  for (const rows of found.rowsByZone("cpu", "name")) {
    const counts = found.histogram(rows, "cpu");
    assert.equal(counts.reduce((sum, count) => sum + count, 0), rows.length);
  }
  found.take({ revision: 2, rows: [[0, 1000, 0, 0, 0]] });
  assert.deepEqual(found.histogram([0], "cpu"), [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
});

test("ordered by use the fullest come first, and each node is there once", () => {
  const found = columns(1_000);
  const zones = found.rowsByZone("cpu", "use");
  for (const rows of zones) {
    rows.forEach((row, at) => assert.ok(at === 0 || found.cpu[rows[at - 1]] >= found.cpu[row]));
  }
  assert.equal(new Set(zones.flat()).size, 1_000);
});

for (const nodes of [1, 12, 5_000, 100_000]) {
  test(`each of ${nodes} nodes has a cell of its own, which a pointer finds`, () => {
    const found = columns(nodes, Math.min(nodes, 7));
    const layout = new HeatLayout(found.rowsByZone("cpu", "name"), 1_200);
    const step = Math.max(1, Math.floor(nodes / 3_000));
    const corners = new Set();
    for (let row = 0; row < nodes; row++) {
      const { x, y, size } = layout.cell(row);
      corners.add(`${x} ${y}`);
      assert.ok(x >= 0 && x + size <= 1_200 && y + size <= layout.height + 1e-6);
      if (row % step === 0) assert.equal(layout.rowAt(x + size / 2, y + size / 2), row);
    }
    assert.equal(corners.size, nodes);
  });
}

test("beside the cells there is no node", () => {
  const layout = new HeatLayout([[0, 1, 2]], 600);
  assert.deepEqual([layout.cell(0), layout.cell(1)], [{ x: 0, y: HEAD, size: 30 }, { x: 30, y: HEAD, size: 30 }]);
  assert.equal(layout.rowAt(1, HEAD - 1), undefined);
  assert.equal(layout.rowAt(-1, HEAD + 1), undefined);
  assert.equal(layout.rowAt(599, HEAD + 500), undefined);
  assert.equal(cellSize(5_000), 14);
});

test("a node that comes moves cells of its zone alone", () => {
  const before = new HeatLayout([[0, 1], [2, 3]], 700, 14);
  const after = new HeatLayout([[0, 1], [2, 3, 4]], 700, 14);
  for (const row of [0, 1]) assert.deepEqual(before.cell(row), after.cell(row));
});

test("fuller is brighter, also in grey scale", () => {
  for (let share = 20; share <= 1000; share += 20) assert.ok(luminance(heat(share)) > luminance(heat(share - 20)));
  assert.deepEqual([heat(-5), heat(2000)], [heat(0), heat(1000)]);
  assert.equal(css([1, 2, 3]), "rgb(1 2 3)");
  for (const share of [0, 250, 500, 750, 1000]) {
    const [light, dark] = ink(heat(share)) === "#fff" ? [1, luminance(heat(share))] : [luminance(heat(share)), 0];
    assert.ok((light + 0.05) / (dark + 0.05) >= 3, `ink on ${share}`);
  }
});

test("states have kubectl's words", () => {
  assert.equal(stateWords(0), "Ready");
  assert.equal(stateWords(CORDONED | NOT_READY | TAINTED), "NotReady,SchedulingDisabled,tainted");
});

test("a plan changes its own nodes alone, as far as the slider says", () => {
  const now = columns(6);
  now.extended["example.com/gpu"] = [500, -1, -1, -1, -1, -1];
  now.resources.push("example.com/gpu");
  const nodes = [["node-000000", "zone-0", true, [200, 0, 10, 500], [400, 0, 20, 250]], ["node-new", "zone-9", false, null, [1000, 5, 100, -1]]];
  const found = new PlannedColumns(now, { resources: ["cpu", "memory", "pods", "example.com/gpu"], nodes });
  const values = (row) => found.resources.map((name) => found.value(row, name));
  assert.deepEqual([found.length, found.zones.at(-1), found.zone[6], found.rowOf("node-new")], [7, "zone-9", 3, 6]);
  assert.deepEqual([values(0), values(6), found.state[0]], [[400, 0, 20, 250], [1000, 5, 100, -1], CORDONED]);
  found.at = 0.5;
  assert.deepEqual([values(0), values(6), found.state[0]], [[300, 0, 15, 375], [1000, 5, 100, -1], CORDONED]);
  found.at = 0;
  assert.deepEqual([values(0), values(6), found.state[0]], [[200, 0, 10, 500], [-1, -1, -1, -1], 0]);
  for (let row = 1; row < 6; row++) assert.deepEqual(values(row), now.resources.map((name) => now.value(row, name)));
  // What is shown as it is knows nothing of it.
  assert.deepEqual([now.length, now.zones.length, now.cpu[0], now.state[0]], [6, 3, 0, 0]);
});

test("a plan of nodes that the reader may not see shows those of the plan", () => {
  const found = new PlannedColumns(new NodeColumns(), { resources: ["cpu", "memory", "pods"], nodes: [["a", "", false, [1, 2, 3], [4, 5, 6]]] });
  assert.deepEqual([found.names, found.zones, found.value(0, "cpu"), found.value(0, "fullest")], [["a"], [""], 4, 6]);
});
