"""The elector's threads over a store in memory: nothing that hangs may keep a belief alive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from leader import effects as fx
from leader import events as ev
from leader.belief import BeliefCell
from leader.clock import Instant, SystemClock
from leader.config import ElectionConfig, ElectionConfigError
from leader.election_state import State
from leader.elector import Elector, ElectorFailedError, NotLeadingError
from leader.lock import Callbacks
from tests.leader.members import eventually, now
from tests.leader.model import ModelStore, held_by

QUICK: dict[str, Any] = {"lease_duration": 0.45, "renew_deadline": 0.3, "retry_period": 0.1, "store_ttl_seconds": 1}


class MemoryLock:
    """Answers on the caller's thread, through the elector's inbox. `hangs`: takes requests and never answers."""

    def __init__(self, store: ModelStore | None = None) -> None:
        self.store = store or ModelStore()
        self.hangs = False
        self.closed = False
        self.deliver: Callable[[ev.Event], None] = print
        self.ttl_seconds = 0

    def start(self, deliver: Callable[[ev.Event], None], ttl_seconds: int) -> None:
        self.deliver, self.ttl_seconds = deliver, ttl_seconds

    def submit(self, request: fx.Request) -> None:
        if not self.hangs:
            self.deliver(ev.Answered(request.number, self.store.perform(request)))

    def close(self) -> None:
        self.closed = True

    def describe(self) -> str:
        return "memory"


class Told:
    def __init__(self, **instead: Any) -> None:
        self.calls: list[tuple[str, Any, float]] = []
        self.callbacks = Callbacks(
            **{
                "on_started_leading": lambda epoch: self.tell("started", epoch),
                "on_stopped_leading": lambda: self.tell("stopped"),
                "on_new_leader": lambda identity, record: self.tell("leader", identity),
                "on_overdue": lambda: self.tell("overdue"),
                "on_failed": lambda failure: self.tell(f"failed: {failure}"),
                "on_event": lambda text: self.tell("event", text),
                **instead,
            }
        )

    def tell(self, what: str, value: Any = None) -> None:
        self.calls.append((what, value, now()))

    def all(self, what: str) -> list[Any]:
        return [value for told, value, _ in self.calls if told == what]

    def when(self, what: str) -> float:
        return float(eventually(lambda: [moment for told, _, moment in list(self.calls) if told == what])[0])


def an_elector(lock: MemoryLock, told: Told, belief: BeliefCell | None = None, **rest: Any) -> Elector:
    config = ElectionConfig(identity="baz", **QUICK, **{k: rest.pop(k) for k in ("suspend", "rejoin") if k in rest})
    return Elector(config, lock, told.callbacks, belief, **rest)


@pytest.mark.row("LE-43", "L21")
@pytest.mark.parametrize("suspend", [True, False])
def test_a_store_that_never_answers_ends_leading_at_the_deadline(suspend: bool, tmp_path: Path) -> None:
    cell, lock, told = BeliefCell.create(tmp_path / "cell"), MemoryLock(), Told()
    elector = an_elector(lock, told, cell, suspend=suspend)
    elector.start()
    eventually(elector.is_leader)
    lock.hangs = True
    time.sleep(0.12)
    belief = cell.belief()
    assert belief is not None
    assert abs(told.when("stopped") - belief.valid_until_ns / 1e9) <= 0.1
    assert not elector.is_leader() and elector.epoch() is None and cell.belief() is None
    assert elector.stop(timeout_seconds=2) and lock.closed


@pytest.mark.row("L22", "L23", "LE-30")
def test_a_run_tells_each_thing_once_and_in_order() -> None:
    lock, told = MemoryLock(), Told()
    elector = an_elector(lock, told)
    elector.start()
    eventually(elector.is_leader)
    assert elector.epoch() == 2 and elector.state is State.LEADING and elector.check() is None
    leader = elector.leader()
    assert leader is not None and leader.holder == "baz"
    assert elector.stop(timeout_seconds=2)
    eventually(lambda: told.all("leader") == ["baz", ""])
    assert told.all("started") == [2] and len(told.all("stopped")) == 1
    assert told.all("event") == ["baz became leader", "baz stopped leading"]
    assert elector.leader() is None and elector.state is State.STOPPED


@pytest.mark.row("L24")
def test_a_run_that_never_led_is_told_to_stop_too() -> None:
    lock, told = MemoryLock(held_by("bing")), Told()
    elector = an_elector(lock, told)
    elector.start()
    eventually(elector.leader)
    assert elector.stop(timeout_seconds=2)
    assert told.all("started") == [] and len(told.all("stopped")) == 1


def test_work_may_be_done_inside_on_started_leading_and_is_awaited() -> None:
    stop, released_too_early = threading.Event(), []
    lock = MemoryLock()

    def work(epoch: int) -> None:
        stop.wait(5)
        time.sleep(0.05)
        released_too_early.append(lock.store.record is None or lock.store.record.record.holder == "")

    elector = an_elector(lock, Told(on_started_leading=work, on_stopped_leading=stop.set))
    elector.start()
    eventually(elector.is_leader)
    assert elector.stop(timeout_seconds=2)
    assert released_too_early == [False]
    assert lock.store.record is not None and lock.store.record.record.holder == ""


@pytest.mark.row("LE-45")
def test_work_that_does_not_stop_is_reported_and_its_term_is_not_released() -> None:
    hung, lock = threading.Event(), MemoryLock()
    told = Told(on_stopped_leading=lambda: hung.wait(5))
    elector = an_elector(lock, told)
    elector.start()
    eventually(elector.is_leader)
    began = now()
    assert not elector.stop(timeout_seconds=0.01)
    assert 0.1 <= told.when("overdue") - began <= 0.3
    assert not elector.is_leader()
    hung.set()
    assert elector.wait(2)
    assert lock.store.record is not None and lock.store.record.record.holder == "baz"


@pytest.mark.row("LE-31")
def test_only_two_callbacks_are_needed() -> None:
    elector = an_elector(MemoryLock(), Told(on_new_leader=None, on_overdue=None, on_event=None))
    elector.start()
    eventually(elector.is_leader)
    assert elector.stop(timeout_seconds=2)


def test_work_that_fails_to_start_gives_the_lease_back() -> None:
    def fail(epoch: int) -> None:
        raise RuntimeError("no work today")

    lock = MemoryLock()
    elector = an_elector(lock, Told(on_started_leading=fail), rejoin=False)
    elector.start()
    assert elector.wait(2)
    assert lock.store.record is not None and lock.store.record.record.holder == ""


def test_a_stop_from_inside_a_callback_does_not_wait_for_itself() -> None:
    answered = threading.Event()
    answers: list[bool] = []

    class EndsAfterTheAnswer(MemoryLock):
        def submit(self, request: fx.Request) -> None:
            if isinstance(request, fx.Release):
                answered.wait(20)
            super().submit(request)

    def stop(_identity: str, _record: object) -> None:
        answers.append(elector.stop(timeout_seconds=3600))
        answered.set()

    elector = an_elector(EndsAfterTheAnswer(), Told(on_new_leader=stop))
    elector.start()
    assert answered.wait(10) and not answers[0]
    assert elector.wait(20) and elector.state is State.STOPPED


def test_a_new_term_voids_the_old_epoch_before_the_call_returns(tmp_path: Path) -> None:
    cell, lock = BeliefCell.create(tmp_path / "cell"), MemoryLock()
    elector = an_elector(lock, Told(), cell)
    elector.start()
    eventually(elector.is_leader)
    lock.hangs = True
    answer = elector.begin_new_term()
    assert cell.belief() is None and elector.epoch() is None and not elector.is_leader()
    lock.hangs = False
    new = answer.result(2)
    assert elector.epoch() == new > 2
    assert elector.stop(timeout_seconds=2)
    late: Future[int] = elector.begin_new_term()
    with pytest.raises(NotLeadingError):
        late.result(1)


def test_a_renewal_that_the_elector_hears_of_late_does_not_bring_the_void_epoch_back(tmp_path: Path) -> None:
    published: list[int] = []
    blocked, go_on = threading.Event(), threading.Event()

    class WatchedCell(BeliefCell):
        def publish(self, epoch: int, valid_until_ns: int) -> None:
            published.append(epoch)
            super().publish(epoch, valid_until_ns)

    class SlowLock(MemoryLock):
        def submit(self, request: fx.Request) -> None:
            super().submit(request)  # its answer lies in the inbox
            if isinstance(request, fx.Renew) and not blocked.is_set():
                blocked.set()
                go_on.wait(5)

    elector = an_elector(SlowLock(), Told(), WatchedCell.create(tmp_path / "cell"))
    elector.start()
    assert blocked.wait(5)
    published.clear()
    answer = elector.begin_new_term()
    go_on.set()
    new = answer.result(2)
    assert published[0] == new
    assert elector.stop(timeout_seconds=2)


def test_many_new_terms_asked_for_from_many_threads_all_end_and_the_last_epoch_is_believed(tmp_path: Path) -> None:
    cell = BeliefCell.create(tmp_path / "cell")
    elector = an_elector(MemoryLock(), Told(), cell)
    elector.start()
    eventually(elector.is_leader)
    answers: list[Future[int]] = []
    threads = [threading.Thread(target=lambda: answers.extend(elector.begin_new_term() for _ in range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = max(answer.result(2) for answer in answers)
    eventually(elector.is_leader)
    belief = cell.belief()
    assert elector.epoch() == last and belief is not None and belief.epoch == last
    assert elector.stop(timeout_seconds=2)


def test_a_new_term_is_refused_where_the_lease_is_not_held() -> None:
    elector = an_elector(MemoryLock(held_by("bing")), Told())
    elector.start()
    with pytest.raises(NotLeadingError, match="baz does not lead"):
        elector.begin_new_term().result(2)
    assert elector.stop(timeout_seconds=2)


class BrokenLock(MemoryLock):
    def submit(self, request: fx.Request) -> None:
        if isinstance(request, fx.Renew):
            raise AssertionError("a bug")
        super().submit(request)


def test_a_bug_of_the_elector_ends_the_belief_and_the_work_and_is_told(tmp_path: Path) -> None:
    cell, told = BeliefCell.create(tmp_path / "cell"), Told()
    elector = an_elector(BrokenLock(), told, cell)
    with pytest.raises(ElectorFailedError):
        elector.run()
    told.when("stopped")
    assert cell.belief() is None and not elector.is_leader()
    problem = elector.check()
    assert elector.failed and problem is not None and "AssertionError('a bug')" in problem
    told.when("failed: a bug")


@pytest.mark.row("LE-22", "L28")
def test_a_leader_whose_thread_hangs_turns_unhealthy() -> None:
    class Late(SystemClock):
        late_ns = 0

        def now(self) -> Instant:
            at = super().now()
            return Instant(at.boot_ns + self.late_ns, at.wall_us)

    clock, stuck = Late(), threading.Event()

    class StuckLock(MemoryLock):
        def submit(self, request: fx.Request) -> None:
            if isinstance(request, fx.Renew):
                stuck.wait(5)
            super().submit(request)

    elector = Elector(ElectionConfig(identity="baz", name="rayched", **QUICK), StuckLock(), Told().callbacks, clock=clock)
    elector.start()
    eventually(elector.is_leader)
    assert elector.check(20) is None
    clock.late_ns = 3600 * 10**9
    assert elector.check(20) == "failed election to renew leadership on lease rayched"
    stuck.set()
    assert elector.stop(timeout_seconds=3)
    assert elector.check(20) is None


@pytest.mark.row("L31")
def test_the_gauge_follows_leading_and_renewals_are_timed() -> None:
    class Metrics:
        def __init__(self) -> None:
            self.status: list[bool] = []
            self.renewals = self.slowpaths = 0

        def master_status(self, name: str, leading: bool) -> None:
            assert name == "leader"
            self.status.append(leading)

        def slowpath(self, name: str) -> None:
            self.slowpaths += 1

        def renewed(self, name: str, seconds: float) -> None:
            assert 0 <= seconds < 1
            self.renewals += 1

    metrics = Metrics()
    elector = an_elector(MemoryLock(held_by("baz", instance="an earlier life")), Told(), metrics=metrics)
    assert metrics.status == [False]
    elector.start()
    eventually(lambda: metrics.renewals >= 2)
    assert elector.stop(timeout_seconds=2)
    assert metrics.status == [False, True, False] and metrics.slowpaths == 1


@pytest.mark.row("LE-20")
def test_questions_from_other_threads_are_answered_while_it_renews() -> None:
    elector = an_elector(MemoryLock(), Told())
    elector.start()
    eventually(elector.is_leader)
    until = now() + 0.5
    answers = set()
    while now() < until:
        answers.add((elector.check(), elector.is_leader(), elector.epoch(), elector.state))
        leader = elector.leader()
        assert leader is not None and leader.holder == "baz"
    assert answers == {(None, True, 2, State.LEADING)}
    assert elector.stop(timeout_seconds=2)


@pytest.mark.row("L11")
def test_an_elector_without_a_lock_is_refused() -> None:
    with pytest.raises(ElectionConfigError, match=r"Lock must not be nil\."):
        Elector(ElectionConfig(identity="a"), None, Told().callbacks)


@pytest.mark.parametrize("end", [SystemExit, ValueError])
def test_a_callback_that_raises_or_exits_holds_up_nothing(end: type[BaseException]) -> None:
    def stopped() -> None:
        raise end

    elector = an_elector(MemoryLock(), Told(on_stopped_leading=stopped))
    elector.start()
    eventually(elector.epoch)
    assert elector.stop()


def test_the_lock_is_given_the_time_to_live_that_was_checked() -> None:
    lock = MemoryLock()
    elector = an_elector(lock, Told())
    elector.start()
    eventually(elector.epoch)
    assert lock.ttl_seconds == QUICK["store_ttl_seconds"]
    assert elector.stop()
