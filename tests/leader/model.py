"""A store that keeps two keys, and a desk at which one election is driven by hand.

Nothing here shares code with the adapter of etcd. Times at the desk are seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from leader import effects as fx
from leader import events as ev
from leader.clock import Instant
from leader.config import ElectionConfig
from leader.election import Election
from leader.record import Epoch, LeaderRecord, StoredEpoch, StoredRecord, View

KINDS = {fx.Get: "get", fx.Acquire: "acquire", fx.Renew: "renew", fx.BeginTerm: "begin term", fx.Release: "release"}


class ModelStore:
    """Strictly serial. `put_record` and `put_epoch` are writes from outside any election."""

    def __init__(self) -> None:
        self.revision = 1
        self.record: StoredRecord | None = None
        self.epoch: StoredEpoch | None = None

    def put(self, record: LeaderRecord | None = None, epoch: Epoch | None = None) -> int:
        self.revision += 1
        if record is not None:
            self.record = StoredRecord(record, self.revision)
        if epoch is not None:
            self.epoch = StoredEpoch(epoch, self.revision)
        return self.revision

    def delete_record(self) -> int:
        self.revision += 1
        self.record = None
        return self.revision

    def view(self) -> View:
        return View(self.record, self.epoch, self.revision)

    def perform(self, request: fx.Request) -> ev.Outcome:
        epoch_now = self.epoch.mod_revision if self.epoch else 0
        record_now = self.record.mod_revision if self.record else 0
        if isinstance(request, fx.Get):
            return ev.Found(self.view())
        if isinstance(request, fx.Acquire):
            if (record_now, epoch_now) != (request.record_revision, request.epoch_revision):
                return ev.Refused(self.view())
            return ev.Written(self.put(request.record, request.epoch))
        if epoch_now != request.guard:
            return ev.Refused(self.view())
        return ev.Written(self.put(request.record, None if isinstance(request, fx.Renew) else request.epoch))


def a_record(holder: str, lease: float = 10.0, **rest: Any) -> LeaderRecord:
    return LeaderRecord(holder, instance=rest.pop("instance", f"of-{holder}"), lease_ms=round(lease * 1000), **rest)


def held_by(holder: str, *, lease: float = 10.0, transitions: int = 0, instance: str | None = None) -> ModelStore:
    """A store in which `holder` leads."""
    store = ModelStore()
    instance = instance or f"of-{holder}"
    store.put(a_record(holder, lease, instance=instance), Epoch(transitions, holder, instance))
    return store


def a_config(**rest: Any) -> ElectionConfig:
    """Identity baz, 10 s lease, as client-go's own tests have it."""
    fields: dict[str, Any] = {
        "identity": "baz",
        "lease_duration": 10.0,
        "renew_deadline": 6.0,
        "retry_period": 2.0,
        "store_ttl_seconds": 10,
    }
    return ElectionConfig(**{**fields, **rest})


@dataclass
class Desk:
    """One election, its store and a clock. What the store does with the next requests is set by `script`:

    answer   perform, answer (also when the script is empty)
    lost     perform, but the outcome is unknown
    failed   do not perform, the outcome is unknown
    hangs    do not perform, never answer
    hangs committed   perform, never answer
    """

    store: ModelStore = field(default_factory=ModelStore)
    config: ElectionConfig = field(default_factory=a_config)
    drains: bool = True
    watches: bool = False
    """Whether the election hears at once of each write to the store, its own included."""
    uniform: float = 0.0
    instance: str = "this"

    def __post_init__(self) -> None:
        self.now = 1000.0
        self.election = Election(self.config, self.instance, lambda: self.uniform)
        self.script: deque[str] = deque()
        self.calls: list[str] = []
        self.requests: list[fx.Request] = []
        self.times: list[float] = []
        self.effects: list[fx.Effect] = []
        self.due: float | None = None
        self.belief: tuple[int, float] | None = None
        self.open_requests: list[fx.Request] = []

    # driving

    def start(self) -> Desk:
        return self.do(ev.Started())

    def do(self, *events: ev.Event) -> Desk:
        waiting = deque(events)
        while waiting:
            for effect in self.election.step(Instant(round(self.now * 1e9), round(self.now * 1e6)), waiting.popleft()):
                self.effects.append(effect)
                waiting.extend(self._perform(effect))
        return self

    def _perform(self, effect: fx.Effect) -> list[ev.Event]:
        match effect:
            case fx.Get() | fx.Acquire() | fx.Renew() | fx.BeginTerm() | fx.Release():
                return self._call(effect)
            case fx.ArmTimer(due_ns):
                self.due = None if due_ns is None else due_ns / 1e9
            case fx.PublishBelief(epoch, valid_until_ns):
                self.belief = (epoch, valid_until_ns / 1e9)
            case fx.WithdrawBelief():
                self.belief = None
            case fx.StopLeading() if self.drains:
                return [ev.Drained()]
        return []

    def _call(self, request: fx.Request) -> list[ev.Event]:
        self.calls.append(KINDS[type(request)])
        self.requests.append(request)
        self.times.append(self.now)
        what = self.script.popleft() if self.script else "answer"
        if what == "hangs":
            self.open_requests.append(request)
            return []
        before = self.store.revision
        outcome = ev.Unknown("failed") if what == "failed" else self.store.perform(request)
        seen: list[ev.Event] = self.watch_events() if self.watches and self.store.revision != before else []
        if what == "hangs committed":
            return seen
        return [*seen, ev.Answered(request.number, ev.Unknown("lost") if what == "lost" else outcome)]

    def watch_events(self) -> list[ev.Event]:
        revision = self.store.revision
        return [ev.RecordChanged(self.store.record, revision), ev.EpochChanged(self.store.epoch, revision)]

    def watch(self) -> Desk:
        """The watch delivers what is there now."""
        return self.do(*self.watch_events())

    def pass_time(self, seconds: float) -> Desk:
        """Let time pass, with a tick at each time that the election asked for."""
        until = self.now + seconds
        steps = 0
        while self.due is not None and self.due <= until:
            self.now = max(self.now, self.due)
            self.do(ev.Tick())
            steps += 1
            assert steps < 10_000, "the election asks for ticks without end"
        self.now = until
        return self

    def sleep(self, seconds: float) -> Desk:
        """Let time pass without any tick."""
        self.now += seconds
        return self

    # looking

    def of(self, kind: type[Any]) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    @property
    def state(self) -> str:
        return self.election.state.value

    @property
    def leads(self) -> bool:
        return self.belief is not None and self.now < self.belief[1]

    @property
    def texts(self) -> list[str]:
        return [effect.text for effect in self.of(fx.Announce)]

    @property
    def leaders(self) -> list[str]:
        return [effect.identity for effect in self.of(fx.NewLeader)]

    @property
    def holder(self) -> str:
        assert self.store.record is not None
        return self.store.record.record.holder

    @property
    def transitions(self) -> int:
        assert self.store.epoch is not None
        return self.store.epoch.epoch.transitions

    def order(self, *kinds: type[Any]) -> list[type[Any]]:
        """The kinds of effects that came, in order, of those asked for."""
        return [type(effect) for effect in self.effects if isinstance(effect, kinds)]


def leading(**desk: Any) -> Desk:
    """A desk whose election leads since a moment."""
    made = Desk(**desk).start()
    assert made.leads
    return made
