"""Time, chance and the network of a simulated world, and the etcd at its other end. One thread, one seed.

Everything that happens is a plan in one heap: (time, number, what). Times are nanoseconds of true time. A `Process` may be
paused, which puts off all that reaches it, in order, and killed, which drops it for good. A `Link` lies between a process and
etcd: calls and answers take time, get lost, come so late that nobody waits any more, or are cut off in one direction.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import grpc

from tests.simulation.etcd import ModelEtcd, WatchStream
from tests.simulation.etcd_errors import EtcdError

SECOND: Final = 1_000_000_000
MS: Final = 1_000_000

Answer = Any
"""A response of etcd, or the EtcdError in its place."""


class Violation(AssertionError):
    """An invariant does not hold. `rule` as in the reliability rules: S1 to S12, L1 to L4, E1, E2, N1 to N5."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


@dataclass(slots=True)
class Weather:
    """How bad the network is."""

    loss: float = 0.0
    """Of a request, and of an answer."""
    late: float = 0.0
    """Share of requests that arrive seconds late."""
    slow: float = 1.0
    """Delays times this."""
    held: int = 0
    """Nanoseconds that etcd takes for each call more than nothing: a slow disk."""


class Process:
    """What is paused and killed as one."""

    def __init__(self, world: World, name: str, parent: Process | None = None) -> None:
        self.world = world
        self.name = name
        self.parent = parent
        self.alive = True
        self._paused_until = 0
        self._waiting: deque[Callable[[], None]] = deque()
        """What came during a pause, in order."""

    def is_alive(self) -> bool:
        return self.alive and (self.parent is None or self.parent.is_alive())

    def awake_at(self) -> int:
        return self._paused_until if self.parent is None else max(self._paused_until, self.parent.awake_at())

    def deliver(self, what: Callable[[], None]) -> None:
        """It happens to the process now; after its pause, and after all that came before it, if it has one."""
        if not self.is_alive():
            return
        wait = self.awake_at() - self.world.now
        if wait <= 0 and not self._waiting:
            what()
            return
        self._waiting.append(what)
        if len(self._waiting) == 1:
            self.world.after(max(0, wait), self._wake)

    def pause(self, duration_ns: int) -> None:
        self._paused_until = max(self._paused_until, self.world.now + duration_ns)

    def resume(self) -> None:
        """The pause is over, if there is one."""
        self._paused_until = min(self._paused_until, self.world.now)
        self.world.after(0, self._wake)

    def _wake(self) -> None:
        wait = self.awake_at() - self.world.now
        if wait > 0:
            self.world.after(wait, self._wake)
            return
        while self._waiting and self.is_alive() and self.awake_at() <= self.world.now:
            # It stays in the queue meanwhile, so that what comes of it has to wait its turn.
            self._waiting[0]()
            self._waiting.popleft()


@dataclass(slots=True)
class Link:
    """A connection to etcd."""

    name: str
    requests_pass: bool = True
    answers_pass: bool = True
    answers_lost: int = 0
    """So many of the next answers are lost with their connection."""


class Stream:
    """A watch stream of a process: messages arrive in order, after a while, and not while the link is cut."""

    def __init__(
        self,
        world: World,
        process: Process,
        link: Link,
        prefixes: tuple[bytes, ...],
        on_message: Callable[[Any], None],
        on_end: Callable[[EtcdError], None],
    ) -> None:
        self.world, self.process, self.link = world, process, link
        self.prefixes = prefixes
        self._on_message, self._on_end = on_message, on_end
        self._server = WatchStream(world.etcd)
        self._open = True
        self._pumping = False
        self._free_at = 0
        self._stalled_until = 0
        world.streams.append(self)

    def send(self, request: Any) -> None:
        def arrive() -> None:
            if self._open and self.link.requests_pass:
                self._server.request(request)
                self.stir()

        self.world.after(self.world.delay(), arrive)

    def stir(self) -> None:
        """There may be something to send."""
        if not self._pumping and self._open:
            self._pumping = True
            self.world.after(self.world.delay(), self._pump)

    def stall(self, duration_ns: int) -> None:
        """etcd sends nothing on it for a while, but answers calls."""
        self._stalled_until = self.world.now + duration_ns
        self.world.after(duration_ns, self.stir)

    def close(self) -> None:
        if self._open:
            self._open = False
            self.world.streams.remove(self)

    def end(self, why: str) -> None:
        """The connection broke."""
        if self._open:
            self.close()
            self.process.deliver(lambda: self._on_end(EtcdError(grpc.StatusCode.UNAVAILABLE, why)))

    def _pump(self) -> None:
        self._pumping = False
        if not self._open or not self.link.answers_pass or self.world.now < self._stalled_until:
            return
        if not self.process.is_alive():
            self.close()
            return
        world = self.world
        messages = self._server.take(world.random.choice((1, 2, 1000)) if world.random.random() < 0.2 else 1000)
        for message in messages:
            wait = max(0, self._free_at - world.now)
            if len(messages) > 1:
                wait += world.delay()
                self._free_at = world.now + wait
            if wait:
                world.after(wait, lambda message=message: self._arrive(message))  # type: ignore[misc]
            else:
                self._arrive(message)

    def _arrive(self, message: Any) -> None:
        def hand_in() -> None:
            if self._open:
                self._on_message(message)

        self.process.deliver(hand_in)


class World:
    """See the module. `committed` is called after each change of the store."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 0
        self.etcd = ModelEtcd()
        self.etcd_up = True
        self.weather = Weather()
        self.streams: list[Stream] = []
        self.committed: Callable[[], None] = lambda: None
        self.events = 0
        """Plans carried out."""
        self.requests = 0
        """Requests that reached etcd."""
        self.fenced = 0
        """Transactions of schedulers that the epoch refused."""
        self.story: Callable[[str], None] | None = None
        """Takes lines that tell what happens, where somebody listens."""
        self._plan: list[tuple[int, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._hash = hashlib.blake2b(digest_size=16)
        self._lease_ends: dict[int, int] = {}
        self.wall_clock: Callable[[], float] = lambda: 0.0
        """In seconds, of the machine whose API is at work."""
        self.unheard_until = 0
        """Until then etcd refuses what agents say, or takes it late, or what leaders made of that is under way."""
        self.etcd_rate = 1.0
        """Of the clock by which etcd counts the time of leases."""

    # ---------------------------------------------------------------------------------------------------------------- time

    def after(self, delay_ns: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._plan, (self.now + delay_ns, next(self._number), what))

    def run_until(self, time_ns: int) -> None:
        plan, pop = self._plan, heapq.heappop
        while plan and plan[0][0] <= time_ns:
            self.now, _, what = pop(plan)
            self.events += 1
            what()
        self.now = time_ns

    def wall_seconds(self) -> float:
        """As the API reads it that is at work."""
        return self.wall_clock()

    def trace(self, *facts: object) -> None:
        """These facts become part of the hash of the run."""
        self._hash.update(repr((self.now, facts)).encode())

    def trace_hash(self) -> str:
        return self._hash.hexdigest()

    def tell(self, text: str) -> None:
        if self.story is not None:
            self.story(f"{self.now / SECOND:9.4f}  {text}")

    # ------------------------------------------------------------------------------------------------------------- network

    def delay(self) -> int:
        """Of one message one way: most take a fraction of a millisecond, few some milliseconds."""
        return int((0.1 + 4.0 * self.random.random() ** 4) * MS * self.weather.slow)

    def call(
        self, process: Process, link: Link, handle: Callable[[], Answer], timeout_ns: int, done: Callable[[Answer], None]
    ) -> None:
        """A call on etcd. `done` comes exactly once while the process lives: with the answer, or with an EtcdError."""
        random, weather = self.random, self.weather
        open_ = True

        def finish(answer: Answer) -> None:
            nonlocal open_
            if open_:
                open_ = False
                done(answer)

        def arrive() -> None:
            if not link.requests_pass:
                return
            if not self.etcd_up:
                refused = EtcdError(grpc.StatusCode.UNAVAILABLE, "connection refused")
                self.after(self.delay(), lambda: process.deliver(lambda: finish(refused)))
                return
            answer = self.serve(handle)
            if weather.loss and random.random() < weather.loss:
                # Half of them are connections that break, which is noticed at once.
                if random.random() < 0.5:
                    return
                answer = EtcdError(grpc.StatusCode.UNAVAILABLE, "connection reset")
            elif link.answers_lost:
                link.answers_lost -= 1
                answer = EtcdError(grpc.StatusCode.UNAVAILABLE, "connection reset")
            if link.answers_pass:
                self.after(self.delay(), lambda: process.deliver(lambda: finish(answer)))

        if not (weather.loss and random.random() < weather.loss):
            wait = self.delay()
            if weather.late and random.random() < weather.late:
                wait += int(random.random() * 4 * SECOND)
            self.after(wait + weather.held, arrive)
        late = EtcdError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        self.after(timeout_ns, lambda: open_ and process.deliver(lambda: finish(late)))

    def serve(self, handle: Callable[[], Answer]) -> Answer:
        """etcd works on a request."""
        before = self.etcd.revision
        self.requests += 1
        try:
            answer = handle()
        except EtcdError as error:
            answer = error
        if self.etcd.revision != before:
            self.stored()
        return answer

    def stored(self) -> None:
        """The store has changed."""
        events = self.etcd.history[-1].events
        keys = [event.kv.key for event in events]
        self.trace(self.etcd.revision, keys)
        for stream in self.streams:
            if any(key.startswith(stream.prefixes) for key in keys):
                stream.stir()
        self.committed()

    # ---------------------------------------------------------------------------------------------------------------- etcd

    def lease_renewed(self, lease: int, *, more_ns: int = 0) -> None:
        """A lease was granted or kept alive: it ends its time to live later, and a little after that, never before."""
        kept = self.etcd.leases.get(lease)
        if kept is None:
            return
        ends = self._lease_ends[lease] = self.now + int((kept.ttl_seconds * SECOND + more_ns) / self.etcd_rate)
        self.after(ends - self.now + int(self.random.uniform(0.1, 0.5) * SECOND), lambda: self._lease_over(lease, ends))

    def _lease_over(self, lease: int, ends: int) -> None:
        if self._lease_ends.get(lease) != ends or lease not in self.etcd.leases:
            return
        if not self.etcd_up:
            self.after(SECOND // 2, lambda: self._lease_over(lease, ends))
            return
        before = self.etcd.revision
        self.etcd.end_lease(lease)
        if self.etcd.revision != before:
            self.stored()

    def etcd_crashes(self, down_ns: int) -> None:
        """Everything stored stays; streams and calls under way are lost, and leases begin anew with the next leader."""
        if not self.etcd_up:
            return
        self.etcd_up = False
        for stream in list(self.streams):
            self.after(self.delay(), lambda stream=stream: stream.end("connection reset"))  # type: ignore[misc]

        def back() -> None:
            self.etcd_up = True
            self.leader_of_etcd_changes()

        self.after(down_ns, back)

    def leader_of_etcd_changes(self) -> None:
        for lease in self.etcd.leases:
            self.lease_renewed(lease, more_ns=SECOND)
