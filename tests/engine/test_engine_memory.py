"""What the engine leaves to workers, how much it keeps, and how wide its totals are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rayched.engine import engine as engine_module
from rayched.engine.engine import Engine
from rayched.engine.prepared import Answer
from rayched.engine.scale import scale_for
from rayched.engine.shards import ColumnRequest
from rayched.framework.plugin_error import PluginError
from rayched.v1.core_pb2 import Pod
from tests.conformance.sharded import AnsweredWork
from tests.engine.spies import Spy, a_snapshot, a_template
from tests.engine.toy_plugins import Images, Rank, Room, a_profile, toy_profile


class CountingShards:
    def __init__(self, answer: Sequence[Answer] | None, *, always: bool = True) -> None:
        self.requests: list[list[ColumnRequest]] = []
        self.answer = answer
        self.always = always

    def pays(self, seconds: float) -> bool:
        return self.always

    def begin(self, requests: Sequence[ColumnRequest], n_rows: int, seconds: float, *, ahead: bool) -> AnsweredWork | None:
        self.requests.append(list(requests))
        return AnsweredWork(self.answer, [0.0] * len(requests))


def test_workers_are_asked_only_for_work_that_is_worth_it() -> None:
    workers = CountingShards(None, always=False)
    snapshot = a_snapshot()
    engine = Engine(snapshot, toy_profile(), workers)
    engine.evaluate(a_template())
    assert workers.requests == []
    workers.always = True
    for template in (a_template(app="a"), a_template("200m"), a_template("200m", app="a")):
        engine.evaluate(template)
    requests = [request for each in workers.requests for request in each]
    asked = [(request.plugin, request.part.value) for request in requests]
    assert set(asked) == {("Room", "filter"), ("Room", "score")}, "the rest is known already"
    assert Pod.FromString(requests[0].pod).spec.containers[0].resources.requests["cpu"].string == "200m"


def test_an_incomplete_answer_of_workers_is_not_taken() -> None:
    snapshot = a_snapshot()
    expected = Engine(snapshot, toy_profile()).evaluate(a_template()).total.tolist()
    for answer in ([], [np.zeros(3, np.uint8)], [np.zeros(10, np.uint8)] * 99):
        workers = CountingShards(answer)
        assert Engine(snapshot, toy_profile(), workers).evaluate(a_template()).total.tolist() == expected
        assert workers.requests


def test_without_a_limit_columns_have_their_bytes_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "BYTES_MAX", 100_000)
    monkeypatch.setattr(engine_module, "BYTES_A_ROW", 100)
    for nodes in (300, 3_000):
        snapshot = a_snapshot(nodes)
        engine = Engine(snapshot, a_profile(filters=(Spy(),), scores=(Images(),)))
        for number in range(100):
            engine.evaluate(a_template(key=str(number)))
        allowed = max(100_000, 100 * snapshot.capacity)
        assert allowed / 2 < engine._store.n_bytes <= allowed


def test_columns_stay_within_their_bytes_and_the_least_recently_used_go_first() -> None:
    spy, snapshot = Spy(), a_snapshot(2000)
    engine = Engine(snapshot, a_profile(filters=(spy,), scores=(spy, Images())), bytes_max=100_000)
    templates = [a_template(key=str(number)) for number in range(30)]
    for template in templates:
        engine.evaluate(template)
        engine.evaluate(templates[0])
        assert engine._store.n_bytes <= 100_000
    spy.asked_again()
    engine.evaluate(templates[0])
    engine.evaluate(templates[-1])
    assert spy.asked_again() == []
    engine.evaluate(templates[1])
    assert spy.asked_again() != []
    assert len(engine._store) < 60
    for template in templates:
        engine.evaluate(template)
    assert engine._store.n_bytes <= 100_000
    assert engine._store.n_bytes == sum(entry.n_bytes for entry in engine._store._entries.values())
    engine._plans.drop_all()
    assert len(engine._store) == 0 and engine._store.n_bytes == 0, "what nobody uses is gone"


@pytest.mark.parametrize(
    ("weights", "dtype"),
    [([], np.int16), ([1, 3], np.int16), ([81], np.int16), ([82], np.int32), ([10**6], np.int32), ([10**9], np.int64)],
)
def test_totals_are_as_narrow_as_the_weights_allow(weights: list[int], dtype: type) -> None:
    scale = scale_for(weights)
    assert scale.dtype == dtype
    # The sum of two parts that are not feasible, and of one that is with the highest score, fit and stay negative.
    assert np.iinfo(dtype).min <= 2 * scale.infeasible and scale.infeasible + 100 * sum(weights) < 0


def test_weights_beyond_int64_are_refused() -> None:
    with pytest.raises(ValueError, match="weights of score plugins add up to"):
        scale_for([2**60])


@pytest.mark.parametrize("weight", [1, 100, 10**7, 10**12])
def test_large_weights_give_exact_totals(weight: int) -> None:
    snapshot = a_snapshot(4)
    profile = a_profile(filters=(Room(),), scores=(Rank(), Room()), weights={"Rank": weight, "Room": 1})
    snapshot.bind("u", a_template("3950m"), "n3")
    assert Engine(snapshot, profile).evaluate(a_template(factor="1")).total[:3].tolist() == [
        97,
        97 + 50 * weight,
        97 + 100 * weight,
    ]


def test_columns_of_an_attempt_that_a_plugin_ended_are_given_back() -> None:
    class Broken(Room):
        def stack(self, states: Sequence[Any]) -> Any:
            raise ValueError("no such states")

    engine = Engine(a_snapshot(30), a_profile(filters=(Spy(), Broken()), scores=(Broken(),)))
    for _ in range(3):
        with pytest.raises(PluginError, match=r'plugin "Room", .*: ValueError: no such states'):
            engine.evaluate(a_template())
    engine._plans.drop_all()
    assert len(engine._store) == 0 and engine._store.n_bytes == 0
