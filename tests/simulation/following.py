"""Follows a prefix of etcd: the real `ListWatchCore`, carried by the simulation as `Watcher` does it with a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rayched.store.list_watch import ListWatchCore
from rayched.store.list_watch_effects import CallFailure, CloseStream, Delivery, Effect, FetchPage, OpenStream, SendOnStream
from tests.simulation.candidate import MachineClock
from tests.simulation.etcd_errors import EtcdError
from tests.simulation.world import SECOND, Link, Process, Stream, World


class Following:
    """`take` gets each delivery. `start` and `stop` once."""

    def __init__(
        self,
        world: World,
        process: Process,
        link: Link,
        clock: MachineClock,
        prefix: bytes,
        page_size: int,
        take: Callable[[Delivery], None],
    ) -> None:
        self._world, self._process, self._link, self._clock = world, process, link, clock
        self._prefix = prefix
        self._take = take
        self.watch = ListWatchCore(prefix, page_size=page_size)
        self._stream: Stream | None = None
        self._number = 0
        self._unread: deque[object] = deque()
        self._timer = 0
        self._stopped = False

    def start(self) -> None:
        self._carry_out(self.watch.start(self._now()))

    def stop(self) -> None:
        """Nothing is delivered any more."""
        self._stopped = True
        self._timer += 1
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _now(self) -> float:
        return self._clock.gettime_ns(-1) / SECOND

    def _carry_out(self, effects: list[Effect]) -> None:
        if self._stopped:
            return
        waiting = list(effects)
        while waiting:
            effect = waiting.pop(0)
            match effect:
                case FetchPage():
                    self._fetch(effect)
                case OpenStream():
                    waiting.extend(self._open(effect))
                case SendOnStream():
                    if self._stream is not None:
                        self._stream.send(effect.request)
                case CloseStream():
                    if self._stream is not None:
                        self._stream.close()
                        self._stream = None
                case _:
                    self._take(effect)
        if self._unread and self.watch.reads:
            self._carry_out(self.watch.stream_message(self._number, self._unread.popleft(), self._now()))
        else:
            self._plan_tick()

    def _plan_tick(self) -> None:
        due_at = self.watch.due_at
        self._timer += 1
        if due_at is None:
            return
        number = self._timer

        def tick() -> None:
            if self._timer == number:
                self._carry_out(self.watch.tick(self._now()))

        wait = self._clock.true_delay_ns(int((due_at - self._now()) * SECOND) + 1000)
        self._world.after(wait, lambda: self._timer == number and self._process.deliver(tick))

    def _fetch(self, page: FetchPage) -> None:
        stream = self._stream

        def answered(answer: object) -> None:
            if self._stream is not stream:
                return
            if isinstance(answer, EtcdError):
                self._carry_out(self.watch.page_failed(CallFailure.of(answer), self._now()))
            else:
                self._carry_out(self.watch.page_arrived(answer, self._now()))

        timeout_ns = int(page.timeout_seconds * SECOND)
        self._world.call(self._process, self._link, lambda: self._world.etcd.range(page.request), timeout_ns, answered)

    def _open(self, opening: OpenStream) -> list[Effect]:
        self._number = number = opening.stream
        self._unread.clear()

        def message(message: object) -> None:
            if number == self._number:
                self._unread.append(message)
                self._carry_out([])

        def end(error: EtcdError) -> None:
            self._carry_out(self.watch.stream_ended(number, CallFailure.of(error), self._now()))

        if not self._world.etcd_up:
            return self.watch.stream_ended(number, CallFailure("connection refused"), self._now())
        self._stream = Stream(self._world, self._process, self._link, (self._prefix,), message, end)
        self._stream.send(opening.request)
        return []
