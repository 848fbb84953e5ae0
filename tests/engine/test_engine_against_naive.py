"""The engine says what the naive cluster says, whatever happened before and whoever evaluated it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import pytest

from rayched.engine import usage_values
from rayched.engine.engine import Engine
from rayched.engine.evaluation import Evaluation
from rayched.engine.prepared import Answer
from rayched.engine.shards import ColumnRequest, ShardAnswers, join_shards
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.table import NodeTable
from rayched.snapshot.transfer import RowsUpdate, TableCopy, export_rows
from rayched.snapshot.verification import verify
from rayched.v1.core_pb2 import Pod
from tests.conformance.sharded import AnsweredWork
from tests.engine.toy_clusters import World
from tests.engine.toy_plugins import FILTERS, SCORES, toy_profile

STEPS = 120
PLUGINS = {plugin.name: plugin for plugin in (*SCORES, *FILTERS)}


class PickledShards:
    """Workers that know nothing but the bytes they are sent. Rows are split anew whenever there are more of them."""

    always = True

    def __init__(self, snapshot: Snapshot, n_workers: int, dead: bool = False) -> None:
        self.snapshot = snapshot
        self.copies = [TableCopy() for _ in range(n_workers)]
        self.dead = dead
        self.asked = 0

    def pays(self, seconds: float) -> bool:
        return True

    def begin(self, requests: Sequence[ColumnRequest], n_rows: int, seconds: float, *, ahead: bool) -> AnsweredWork | None:
        self.asked += 1
        if self.dead:
            return None
        size = -(-n_rows // len(self.copies))
        pieces: list[list[Answer]] = [[] for _ in requests]
        for number, copy in enumerate(self.copies):
            rows = slice(min(number * size, n_rows), min((number + 1) * size, n_rows))
            if rows.start < rows.stop:
                bring_up_to_date(copy, self.snapshot, rows)
                found, _ = ShardAnswers(copy, PLUGINS).answer(pickle.loads(pickle.dumps(list(requests))), rows)  # noqa: S301
                for answers, answer in zip(pieces, found, strict=True):
                    answers.append(answer)
        columns = [join_shards(request, answers) for request, answers in zip(requests, pieces, strict=True)]
        return AnsweredWork(columns, [0.0] * len(requests))


def bring_up_to_date(copy: TableCopy, snapshot: Snapshot, rows: slice) -> RowsUpdate:
    update: RowsUpdate = pickle.loads(pickle.dumps(export_rows(snapshot, rows, copy.position)))  # noqa: S301
    copy.import_rows(update)
    return update


def totals_by_name(evaluation: Evaluation, table: NodeTable) -> dict[str, int]:
    return {table.name_of(row): int(evaluation.total[row]) for row in evaluation.feasible.nonzero()[0].tolist()}


def assert_equal(evaluation: Evaluation, expected: dict[str, int], table: NodeTable, what: str) -> None:
    found = totals_by_name(evaluation, table)
    assert found.keys() == expected.keys(), what
    assert evaluation.n_feasible == len(expected), what
    assert evaluation.is_feasible == bool(expected), what
    best = {table.name_of(row) for row in evaluation.best_rows}
    if len(expected) > 1:
        assert found == expected, what
        assert best == {name for name, total in expected.items() if total == max(expected.values())}, what
        rows = {table.row_of(name): total for name, total in expected.items()}
        ranked = sorted((-total, row) for row, total in rows.items() if row is not None)
        after = [(row, -total) for total, row in ranked[len(best) :]]
        assert evaluation.runners_up(evaluation.best_rows, 5) == after[:5], what
    else:
        assert best == expected.keys(), what


@pytest.mark.row("F6", "F23")
@pytest.mark.parametrize("seed", range(6))
def test_every_way_of_evaluating_gives_the_naive_totals_after_every_change(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Few templates make a stack, in half of the worlds.
    monkeypatch.setattr(usage_values, "FEW", 1 if seed % 2 else 7)
    world = World(seed)
    profile = toy_profile()
    copy = TableCopy()
    engines = {
        "kept": (Engine(world.snapshot, profile), world.snapshot),
        "kept, no room": (Engine(world.snapshot, profile, bytes_max=1), world.snapshot),
        "two workers": (Engine(world.snapshot, profile, PickledShards(world.snapshot, 2)), world.snapshot),
        "dead workers": (Engine(world.snapshot, profile, PickledShards(world.snapshot, 2, dead=True)), world.snapshot),
        "a copy": (Engine(copy, profile), copy),
    }
    for step in range(STEPS):
        world.step()
        verify(world.snapshot)
        if world.random.random() < 0.05:
            copy.import_rows(export_rows(world.snapshot, slice(0, 1 << 30)))
        bring_up_to_date(copy, world.snapshot, slice(0, 1 << 30))
        pods = world.random.sample(world.pending, 2)
        for pod in pods:
            expected = world.naive.totals(pod)
            template = world.template(pod)
            for name, (engine, table) in {**engines, "fresh": (Engine(world.snapshot, profile), world.snapshot)}.items():
                assert_equal(engine.evaluate(template), expected, table, f"seed {seed}, step {step}, {name}")
            assert_rows_agree(engines["kept"][0], world, pod)
            assert_diagnosis_agrees(engines["kept"][0], world, pod)


def assert_rows_agree(engine: Engine, world: World, pod: Pod) -> None:
    """Any rows in any order, evaluated directly: the same codes and totals."""
    expected = world.naive.totals(pod)
    template = world.template(pod)
    rows = world.snapshot.alive.nonzero()[0].tolist()
    world.random.shuffle(rows)
    some = np.array(rows[: world.random.randint(0, len(rows))], np.intp)
    for row, code in zip(some, engine.filter_rows(template, some).codes, strict=True):
        rejected = world.naive.rejecting(pod, world.naive.nodes[world.snapshot.name_of(row)])
        assert code == (0 if rejected is None else rejected[1])
    if "only" not in pod.metadata.labels and "odd" not in pod.metadata.labels and len(expected) > 1:
        found = engine.evaluate_rows(template, np.array(rows, np.intp))
        names = [world.snapshot.name_of(row) for row in rows]
        assert {name: total for name, total in zip(names, found.total.tolist(), strict=True) if total >= 0} == expected
        told = engine.explain(template).rows
        assert {world.snapshot.name_of(row): int(t) for row, t in zip(told.index, told.total, strict=True) if t >= 0} == expected


def assert_diagnosis_agrees(engine: Engine, world: World, pod: Pod) -> None:
    diagnosis = engine.diagnose(world.template(pod))
    looked_at = {node.metadata.name for node in world.naive.looked_at(pod)}
    rejections = {name: world.naive.rejecting(pod, node) for name, node in world.naive.nodes.items() if name in looked_at}
    reasons: dict[str, int] = {}
    for rejected in rejections.values():
        if rejected is not None:
            reasons[rejected[2]] = reasons.get(rejected[2], 0) + 1
    labels = pod.metadata.labels
    narrowing = [name for name, label in (("Named", "only"), ("OddNames", "odd")) if labels.get(label, "all") != "all"]
    left_out = len(world.naive.nodes) - sum(reasons.values())
    if narrowing and left_out:
        reasons[f"node(s) didn't satisfy plugin(s) [{' '.join(narrowing)}]"] = left_out
    if not diagnosis.pre_filter.ok:
        # Only where no node both plugins allow can exist at all.
        assert diagnosis.message().endswith("simultaneously.")
        return
    assert diagnosis.reasons == reasons
    assert diagnosis.unschedulable_plugins == {r[0] for r in rejections.values() if r is not None} | set(narrowing)
    for name, rejected in rejections.items():
        row = world.snapshot.row_of(name)
        assert row is not None
        assert diagnosis.codes[row] == (0 if rejected is None else rejected[1])
        if rejected is not None:
            assert diagnosis.filters[diagnosis.failing[row]] == rejected[0]


@pytest.mark.row("F4")
@pytest.mark.parametrize("sums_min", [2, 8])
def test_placing_pods_one_after_the_other_follows_the_naive_cluster(sums_min: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each decision is bound before the next one, so that one changed row is all that the engine refreshes."""
    monkeypatch.setattr(usage_values, "FEW", sums_min - 1)
    world = World(7, n_nodes=40)
    engine = Engine(world.snapshot, toy_profile())
    for number in range(250):
        pod = world.random.choice(world.pending)
        expected = world.naive.totals(pod)
        evaluation = engine.evaluate(world.template(pod))
        assert_equal(evaluation, expected, world.snapshot, f"pod {number}")
        if expected:
            name = world.snapshot.name_of(world.random.choice(evaluation.best_rows.tolist()))
            world.snapshot.bind(f"placed-{number}", world.template(pod), name)
            world.naive.pods[f"placed-{number}"] = pod, name
        elif world.naive.pods:
            world.unbind()
    verify(world.snapshot)
