"""Commands of transcripts about the scheduling queue.

queue PLUGIN=EVENT,EVENT ...   an empty queue; PreEnqueue refuses pods with scheduling gates
add, update NAME ...           priority=N, gates=A,B, nominated=NODE
pop                            the next pod, which is in flight from then on
bound, delete NAME             the pod has its node; the pod is gone
rejected NAME by=PLUGIN,...    its attempt ends with a rejection
broken NAME                    its attempt ends with an error
event EVENT                    something happens in the cluster
activate NAME                  the pod is to be tried at once
wait SECONDS                   time passes
show                           every place, and who is there
"""

from __future__ import annotations

from collections.abc import Iterator

from rayched.framework import cluster_event
from rayched.framework.cluster_event import ClusterEvent
from rayched.framework.queueing_hints import Registration
from rayched.queue.queued_pod import Moves
from tests.queue.builders import GATES_GONE, Clocked, Gates, a_queue
from tests.transcripts.transcript import Command, unknown

EVENTS = {event.label: event for event in vars(cluster_event).values() if isinstance(event, ClusterEvent)}
PLACES = ("active", "backoff", "error_backoff", "unschedulable", "gated", "in_flight")


class QueueMachine:
    def __init__(self) -> None:
        self._queue = a_queue()

    def run(self, command: Command) -> Iterator[str]:
        queue, name = self._queue, next(iter(command.arguments), "")
        match command.verb:
            case "queue":
                self._queue = _queue(command)
                return
            case "add" | "update":
                act = queue.add if command.verb == "add" else queue.update
                moves = act(
                    name,
                    priority=int(command.number("priority")),
                    gates=command.names("gates"),
                    nominated=command.settings.get("nominated", ""),
                )
            case "pop":
                pod = queue.queue.pop(queue.now)
                yield "nothing to pop" if pod is None else f"{pod.pod.metadata.name}, attempt {pod.attempts}"
                return
            case "bound":
                yield f"{name} leaves the queue" if queue.queue.done(f"uid-{name}") else f"{name} is not in flight"
                return
            case "delete":
                yield f"{name} was {queue.queue.delete(f'uid-{name}', f'default/{name}').value}"
                return
            case "rejected":
                moves = queue.fail(name, *command.names("by"))
            case "broken":
                moves = queue.fail(name)
            case "event":
                moves = queue.queue.move_all(EVENTS[" ".join(command.arguments)], queue.now)
            case "activate":
                moves = queue.queue.activate([f"default/{name}"], queue.now)
            case "wait":
                yield from self._wait(float(command.arguments[0]))
                return
            case "show":
                yield from self._show()
                return
            case _:
                raise unknown(command, "queue, add, update, pop, bound, delete, rejected, broken, event, activate, wait, show")
        yield from _moves(moves)

    def _wait(self, seconds: float) -> Iterator[str]:
        queue = self._queue
        until = queue.now + seconds
        while (due := queue.queue.next_due(queue.now)) is not None and due <= until:
            queue.now = due
            moves = queue.queue.flush(due)
            if not moves:
                break
            for line in _moves(moves):
                yield f"at {due:.0f} s: {line}"
        queue.now = until

    def _show(self) -> Iterator[str]:
        pods = list(self._queue.queue.in_order())
        for place in PLACES:
            there = [pod.pod.metadata.name for pod in pods if pod.place.value == place]
            if there:
                yield f"{place}: {' '.join(there)}"
        if not pods:
            yield "empty"
        assert self._queue.queue.verify() == []


def _queue(command: Command) -> Clocked:
    plugins = {plugin: [Registration(EVENTS[event]) for event in command.names(plugin)] for plugin in command.settings}
    return a_queue({"Gates": GATES_GONE, **plugins}, pre_enqueue={"default-scheduler": [Gates()]})


def _moves(moves: Moves) -> Iterator[str]:
    for move in moves:
        yield f"{move.key.removeprefix('default/')} -> {move.place.value}, by {move.event}"
    if not moves:
        yield "no pod moves"
