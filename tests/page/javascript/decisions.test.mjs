import assert from "node:assert/strict";
import test from "node:test";
import { dots, moments, segments, thenAndNow } from "../../../rayched/page/static/decision.js";
import { Samples, attemptsOf, fencedByEpoch, lanes, latencyOf, niceEnd, pauses, pendingOf, stacked } from "../../../rayched/page/static/series.js";

const EXPLAINED = {
  nodes: 100,
  feasible: 3,
  rejected: "",
  totals: [[500, 2], [480, 1]],
  verdicts: [{ node: "a", total: 500, scores: [] }, { node: "b", total: 500, scores: [] }, { node: "c", total: 480, scores: [] }],
  rejections: [{ plugin: "NodeResourcesFit", reason: "Insufficient cpu", count: 90, nodes: [] }, { plugin: "TaintToleration", reason: "taint", count: 7, nodes: [] }],
  decision: { best: [["a", 500], ["b", 470], ["gone", 460], ["alone", null], ["c", null]] },
};

test("segments of the sentence sum to the nodes", () => {
  const found = segments(EXPLAINED);
  assert.deepEqual(found.map((one) => [one.kind, one.count, one.index]), [["feasible", 3, -1], ["rejected", 90, 0], ["rejected", 7, 1]]);
  assert.equal(found.reduce((sum, one) => sum + one.count, 0), 100);
  const whole = segments({ ...EXPLAINED, feasible: 0, rejections: [], rejected: "it names no node" });
  assert.deepEqual(whole.map((one) => [one.label, one.count]), [["feasible", 0], ["it names no node", 100]]);
});

test("the dots of the highest total are those drawn between", () => {
  assert.deepEqual(dots(EXPLAINED), [{ total: 500, count: 2, best: true }, { total: 480, count: 1, best: false }]);
});

test("then and now differ only where totals do", () => {
  assert.deepEqual(thenAndNow(EXPLAINED).map((one) => [one.node, one.then, one.now, one.differs]), [
    ["a", 500, 500, false],
    ["b", 470, 500, true],
    ["gone", 460, null, true],
    ["alone", null, null, false],
    ["c", null, 480, false],
  ]);
  assert.deepEqual(thenAndNow({ ...EXPLAINED, decision: null }), []);
});

test("the seconds of a pod's life are the differences of its times", () => {
  const pod = {
    created: 100,
    started: 103.5,
    deleted: null,
    ended: 110,
    conditions: [
      { type: "PodScheduled", status: "True", reason: "", at: 101 },
      { type: "Ready", status: "False", reason: "x", at: 102 },
      { type: "Initialized", status: "True", reason: "", at: null },
    ],
  };
  assert.deepEqual(moments(pod), [
    { what: "created", at: 100, after: 0 },
    { what: "PodScheduled", at: 101, after: 1 },
    { what: "started", at: 103.5, after: 2.5 },
    { what: "ended", at: 110, after: 6.5 },
  ]);
});

test("samples are kept for an hour, and none twice", () => {
  const samples = new Samples();
  samples.begin({ fine: [], coarse: [] });
  for (let second = 0; second < 5_000; second++) samples.add([second, 1, 0, 0, 1, 2, 3, 4, 5]);
  samples.add([4_999, 9, 9, 9, 9, 9, 9, 9, 9]);
  assert.deepEqual([samples.fine.length, samples.coarse.length], [300, 360]);
  assert.equal(samples.over(300, 4_999).length, 300);
  assert.ok(samples.over(3_600, 4_999).every((sample) => sample[0] >= 1_399));
  assert.deepEqual([attemptsOf(samples.fine[0]), pendingOf(samples.fine[0])], [[1, 0, 0], [1, 2, 3, 4, 5]]);
  const sample = [7, 1, 0, 0, 1, 2, 3, 4, 5, 0.004, null, 0.01, 0.02];
  assert.deepEqual([pendingOf(sample), latencyOf(sample)], [[1, 2, 3, 4, 5], [4, null, 10, 20]]);
});

test("layers stand on each other, and what is not known is a gap", () => {
  assert.deepEqual(stacked([[1, 2, 3], [null, 0, 0], [0, 0, 0]]), [[1, null, 0], [3, null, 0], [6, null, 0]]);
  assert.deepEqual([0, 0.3, 7, 20, 21, 4000].map(niceEnd), [1, 0.5, 10, 20, 50, 5000]);
});

test("the pause between two terms has its length, and has none while nobody leads", () => {
  const terms = [{ holder: "a", epoch: 1, since: 0, until: 10 }, { holder: "b", epoch: 5, since: 10.25, until: 20 }];
  assert.deepEqual(pauses(terms), [{ from: 10, until: 10.25, after: 1 }, { from: 20, until: null, after: 5 }]);
  assert.deepEqual(pauses([{ holder: "a", epoch: 1, since: 0, until: 3 }, { holder: "a", epoch: 2, since: 3, until: null }]), []);
  assert.deepEqual(lanes([...terms, { holder: "a", epoch: 9, since: 21, until: null }]), ["a", "b"]);
});

test("writes that were fenced belong to the term before them of their replica", () => {
  const terms = [{ holder: "a", epoch: 1, since: 0, until: 10 }, { holder: "b", epoch: 5, since: 11, until: 20 }, { holder: "a", epoch: 9, since: 21, until: null }];
  const fenced = [[12, "a", 2], [12.5, "a", 1], [22, "b", 4], [23, "a", 8], [5, "b", 1], [5, "c", 1]];
  assert.deepEqual([...fencedByEpoch(terms, fenced)], [[1, 3], [5, 4], [9, 8]]);
});
