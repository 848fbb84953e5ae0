"""Commands of transcripts about the exchange between the scheduler and the queue, over a store in memory.

node NAME cpu=N                a node is in the store
pod NAME cpu=N priority=N      a pod is in the store, without a node; a pod of that name is replaced
delete NAME                    the pod is gone
lead                           the replica acquires leadership
depose                         it stops believing that it leads
watch                          the scheduler sees what happened in the store
turn                           the scheduler sends what is to be sent
queue                          the queue takes the oldest request and answers
receive                        the scheduler takes the oldest answer of the queue
decide                         the scheduler decides one batch
store                          the store takes all transactions, and the scheduler their answers
run                            all of these, until nothing moves
queue-dies                     the queue's process ends, and an empty one takes its place
wait SECONDS                   time passes

A request is printed with `->`, an answer with `<-`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rayched.core.exchange.messages import (
    AssignedPods,
    AttemptFailed,
    AttemptsEnded,
    ClusterChange,
    ExchangeAnswer,
    ExchangeRequest,
    GivenBack,
    LogEntry,
    PendingPodGone,
    PendingPodSeen,
)
from tests.core.builders import a_node, a_pod
from tests.core.leading import key_of, put_node, put_pod
from tests.core.model_store import ModelStore
from tests.core.replica import Clock, Replica
from tests.transcripts.transcript import Command, unknown


class ExchangeMachine:
    def __init__(self) -> None:
        self._store = ModelStore()
        self._replica = Replica(self._store, Clock(0.0))
        self._replica.list()
        self._steps: dict[str, Callable[[], Iterator[str]]] = {
            "watch": self._watch,
            "turn": self._turn,
            "queue": self._queue,
            "receive": self._receive,
            "decide": self._decide,
            "store": self._to_store,
        }

    def run(self, command: Command) -> Iterator[str]:
        name = next(iter(command.arguments), "")
        match command.verb:
            case "node":
                put_node(self._store, a_node(name, cpu=command.settings.get("cpu", "4")))
            case "pod":
                cpu, priority = command.settings.get("cpu", "1"), int(command.number("priority"))
                put_pod(self._store, a_pod(name, cpu=cpu, priority=priority))
            case "delete":
                self._store.delete(key_of(name))
            case "lead":
                self._replica.lead()
            case "depose":
                self._replica.belief = None
            case "queue-dies":
                self._replica.lose_queue()
            case "wait":
                self._replica.clock.now += float(name)
            case "run":
                yield from self._run()
            case verb if verb in self._steps:
                yield from self._steps[verb]()
            case _:
                more = ", ".join(self._steps)
                raise unknown(command, f"node, pod, delete, lead, depose, queue-dies, wait, run, {more}")

    def _run(self) -> Iterator[str]:
        for _ in range(1000):
            lines = [line for step in self._steps.values() for line in step()]
            yield from lines
            turn_at = self._replica.turn_at
            if not lines and not self._moves() and (turn_at is None or turn_at > self._replica.clock.now):
                return
        raise AssertionError("it does not come to rest")

    def _moves(self) -> bool:
        replica = self._replica
        return bool(replica.to_store or replica.to_core or replica.to_queue or replica.from_queue or len(replica.core.link or ()))

    def _watch(self) -> Iterator[str]:
        self._replica.watch()
        return iter(())

    def _turn(self) -> Iterator[str]:
        before = len(self._replica.to_queue), len(self._replica.to_store)
        self._replica.turn()
        for request in self._replica.to_queue[before[0] :]:
            yield from _request(request)
        for send in self._replica.to_store[before[1] :]:
            yield f"   transaction: {send.op}, {send.n_writes} written"

    def _queue(self) -> Iterator[str]:
        if self._replica.exchange():
            yield _answer(self._replica.from_queue[-1])

    def _receive(self) -> Iterator[str]:
        self._replica.exchanged()
        return iter(())

    def _decide(self) -> Iterator[str]:
        core, attempts = self._replica.core, dict(self._replica.core.attempts)
        before = len(self._replica.decided_about)
        core.decide()
        for uid in self._replica.decided_about[before:]:
            if uid:
                node = core.scheduler.occupancy.assumed_on(uid)
                yield f"   decided: {_name(uid)} {'goes to ' + node if node else 'finds no node'}"
        assert sum(core.attempts.values()) >= sum(attempts.values())

    def _to_store(self) -> Iterator[str]:
        while self._replica.arrive():
            pass
        while self._replica.answer():
            pass
        return iter(())


def _name(uid: str) -> str:
    return uid.removeprefix("uid-")


def _names(uids: tuple[str, ...] | list[str]) -> str:
    return " ".join(map(_name, uids)) or "nothing"


def _request(request: ExchangeRequest) -> Iterator[str]:
    entries = [f"{request.first + place} {_entry(entry)}" for place, entry in enumerate(request.entries)]
    yield f"-> session {request.session}, wants {request.want} pods{'' if entries else ', nothing new'}"
    for entry in entries:
        yield f"     {entry}"
    for uid, _, standing in request.roll:
        yield f"     audit: {_name(uid)} is {standing}"


def _entry(entry: LogEntry) -> str:
    match entry:
        case PendingPodSeen(uid=uid, template=template, priority=priority, is_new=is_new):
            return f"pod {_name(uid)} {'is new' if is_new else 'has changed'}: template {template}, priority {priority}"
        case PendingPodGone(uid=uid):
            return f"pod {_name(uid)} is gone"
        case ClusterChange(event=event):
            return f"event {event.label}"
        case AssignedPods(event=event, node_names=nodes):
            return f"event {event.label} on {' '.join(nodes)}"
        case AttemptsEnded(uids=uids):
            return f"{_names(uids)} left the queue"
        case AttemptFailed(uid=uid, began=began, unschedulable_plugins=plugins):
            why = f"rejected by {' '.join(sorted(plugins))}" if plugins else "broken"
            return f"attempt of {_name(uid)} failed: {why}; it saw entries up to {began}"
        case GivenBack(uids=uids):
            return f"given back: {_names(uids)}"
        case _:
            return repr(entry)


def _answer(answer: ExchangeAnswer) -> str:
    places = " ".join(f"{place}={count}" for place, count in answer.counts.items() if count) or "empty"
    due = "" if answer.next_due is None else f"; due at {answer.next_due:.0f} s"
    return f"<- session {answer.session}, pods: {_names(answer.uids)}; queue: {places}{due}"
