"""Plugins of one's own in the whole way of a pod, queue and store included: who is called when, and what a refusal leads to."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from rayched.api import kinds
from rayched.framework.cycle_state import CycleState
from rayched.framework.plugin import PostFilterResult, QueuedPod
from rayched.framework.profile import Profile
from rayched.framework.status import SKIP, SUCCESS, Status, error, unschedulable
from rayched.snapshot.columns import Log
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Pod
from tests.core.builders import a_node, a_pod, stored
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Clock, Replica, default_profiles

BINDING_CYCLE = ("reserve", "permit", "pre_bind", "bind", "post_bind", "unreserve")


@dataclass
class Spy:
    """A plugin at every extension point. It writes down each call, and answers what the test says."""

    name: str = "Spy"
    reads: Log = Log.LABELS
    calls: list[str] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)

    def _answer(self, point: str, otherwise: Any = SUCCESS) -> Any:
        self.calls.append(point)
        answer = self.answers.get(point, otherwise)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pre_enqueue(self, pod: Pod) -> Status:
        return self._answer("pre_enqueue")

    def sort_key(self, pod: QueuedPod) -> Any:
        return self._answer("sort_key", -pod.priority)

    def key(self, pod: Pod) -> Any:
        return pod.metadata.name

    def prepare(self, pod: Pod) -> None:
        return self._answer("prepare", None)

    def narrow(self, state: Any) -> Any:
        return self._answer("narrow", None)

    def filter(self, state: Any, rows: Rows) -> Any:
        return self._answer("filter", np.zeros(rows.n, np.uint8))

    def reasons(self, state: Any, rows: Rows, codes: Any) -> Any:
        return (("no room for spies", codes != 0),)

    def score(self, state: Any, rows: Rows) -> Any:
        return self._answer("score", np.full(rows.n, 50, np.int64))

    def normalize(self, raw: Any, low: int, high: int) -> Any:
        return self._answer("normalize", raw)

    def post_filter(self, state: CycleState, pod: Pod) -> tuple[PostFilterResult | None, Status]:
        return None, self._answer("post_filter", unschedulable("nobody to preempt"))

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return self._answer("reserve")

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._answer("unreserve")

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        return self._answer("permit"), 5.0

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return self._answer("pre_bind")

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return self._answer("bind", SKIP)

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._answer("post_bind")

    def in_order(self) -> list[str]:
        """The calls, each run of equal ones as one."""
        return [call for place, call in enumerate(self.calls) if not place or self.calls[place - 1] != call]


def profiles(spy: Spy) -> dict[str, Profile]:
    (default,) = default_profiles().values()
    profile = replace(
        default,
        queue_sort=spy,
        pre_enqueue=(*default.pre_enqueue, spy),
        pre_filter=(*default.pre_filter, spy),
        filter=(*default.filter, spy),
        post_filter=(spy,),
        score=(*default.score, spy),
        weights={**default.weights, spy.name: 1},
        reserve=(spy,),
        permit=(spy,),
        pre_bind=(spy,),
        bind=(spy, *default.bind),
        post_bind=(spy,),
    )
    return {profile.scheduler_name: profile}


def a_leader(spy: Spy) -> Replica:
    store = ModelStore()
    for name in ("n1", "n2"):
        store.put(KEYS.object_key(kinds.NODE, "", name), stored(a_node(name)))
    replica = Replica(store, Clock(), profiles=profiles(spy), events=True)
    replica.list()
    replica.lead()
    replica.settle()
    return replica


def submit(replica: Replica, name: str = "web", cpu: str = "1") -> None:
    replica.store.put(KEYS.object_key(kinds.POD, "default", name), stored(a_pod(name, cpu=cpu)))
    replica.settle()


def condition(replica: Replica, name: str = "web") -> tuple[str, str, str]:
    pod = replica.store.pod(KEYS.object_key(kinds.POD, "default", name))
    assert pod is not None
    (found,) = pod.status.conditions
    return found.status, found.reason, found.message


@pytest.mark.row("K6.1", "K6.2", "K6.8")
def test_a_pod_passes_all_extension_points_from_the_queue_to_post_bind() -> None:
    spy = Spy()
    replica = a_leader(spy)
    submit(replica)
    assert replica.bound().keys() == {"web"}
    points = [call for call in spy.in_order() if call not in ("sort_key", "prepare")]
    assert points == [
        *("pre_enqueue", "narrow", "filter", "score", "normalize"),
        *("reserve", "permit", "pre_bind", "bind", "post_bind"),
    ]
    assert spy.calls.index("pre_enqueue") < spy.calls.index("sort_key") < spy.calls.index("filter")
    assert all(spy.calls.count(point) == 1 for point in BINDING_CYCLE if point != "unreserve")
    assert spy.calls.count("normalize") == 1 and "post_filter" not in spy.calls and "unreserve" not in spy.calls


@pytest.mark.row("K6.2")
def test_post_filter_is_called_where_no_node_will_do_and_nothing_after_it() -> None:
    spy = Spy(answers={"filter": np.full(2, 2, np.uint8)})
    replica = a_leader(spy)
    submit(replica)
    assert [call for call in spy.in_order() if call not in ("sort_key", "prepare", "pre_enqueue", "narrow")] == [
        "filter",
        "post_filter",
    ]
    assert condition(replica)[:2] == ("False", "Unschedulable")
    assert condition(replica)[2].startswith("0/2 nodes are available: 2 no room for spies.")


TURNED_DOWN = [
    ("reserve", ["reserve", "unreserve"]),
    ("permit", ["reserve", "permit", "unreserve"]),
    ("pre_bind", ["reserve", "permit", "pre_bind", "unreserve"]),
    ("bind", ["reserve", "permit", "pre_bind", "bind", "unreserve"]),
]


@pytest.mark.row("K6.5", "K6.7", "F11")
@pytest.mark.parametrize(("point", "calls"), TURNED_DOWN, ids=[row[0] for row in TURNED_DOWN])
@pytest.mark.parametrize(
    "answer", [unschedulable("not today"), error("broken"), RuntimeError("broken")], ids=["no", "error", "raises"]
)
def test_whoever_turns_a_chosen_node_down_has_it_undone_and_the_pod_is_tried_again(
    point: str, calls: list[str], answer: Status | Exception
) -> None:
    spy = Spy(answers={point: answer})
    replica = a_leader(spy)
    submit(replica)
    assert [call for call in spy.in_order() if call in BINDING_CYCLE] == calls
    assert replica.bound() == {} and replica.core.scheduler.occupancy.n_assumed == 0
    refused = isinstance(answer, Status) and answer.rejected
    assert condition(replica)[1] == ("Unschedulable" if refused else "SchedulerError")
    # A refusal waits for something to happen, an error for its backoff.
    spy.answers.clear()
    replica.clock.now += 10.0
    if refused:
        replica.core.activate(("default/web",))
    replica.settle()
    assert replica.bound().keys() == {"web"} and replica.core.attempts["scheduled"] == 1


@pytest.mark.row("K6.3", "K6.4")
@pytest.mark.parametrize(
    ("point", "answer", "text"),
    [
        ("prepare", ValueError("no state"), "ValueError: no state"),
        ("narrow", ValueError("no names"), "ValueError: no names"),
        ("filter", ValueError("no codes"), "ValueError: no codes"),
        ("score", ValueError("no scores"), "ValueError: no scores"),
        ("normalize", ValueError("no order"), "ValueError: no order"),
        ("normalize", np.array([101, 5]), "101"),
        ("normalize", np.array([-1, 5]), "-1"),
    ],
)
def test_an_error_before_a_node_is_chosen_ends_the_attempt_and_names_the_plugin(point: str, answer: Any, text: str) -> None:
    spy = Spy(answers={point: answer})
    replica = a_leader(spy)
    submit(replica)
    status, reason, message = condition(replica)
    assert (status, reason) == ("False", "SchedulerError")
    assert spy.name in message and text in message
    assert not any(call in BINDING_CYCLE for call in spy.calls) and replica.core.attempts["error"] == 1
    # Others are not held up, and it is tried again after its backoff.
    spy.answers.clear()
    submit(replica, "other")
    assert replica.bound().keys() == {"other"}
    replica.clock.now += 10.0
    replica.settle()
    assert replica.bound().keys() == {"other", "web"}


@pytest.mark.row("K6.7")
def test_the_first_bind_plugin_that_does_not_skip_is_the_last_that_is_asked() -> None:
    spy = Spy(answers={"bind": SUCCESS})
    second = Spy("Second")
    replica = a_leader(spy)
    (profile,) = profiles(spy).values()
    profile = replace(profile, bind=(spy, second))
    replica = Replica(replica.store, Clock(), profiles={profile.scheduler_name: profile})
    replica.list()
    replica.lead()
    submit(replica)
    assert spy.calls.count("bind") == 1 and second.calls == []
    assert replica.bound().keys() == {"web"}
