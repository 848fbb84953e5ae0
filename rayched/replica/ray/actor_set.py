"""The actors of a replica within one Ray: queue, scheduler, workers, and a spare process for the next scheduler.

Who dies is replaced, and etcd tells the replacement the rest. One unfinished call of each actor fails within milliseconds of its
death; `turn` waits for these calls and for the answers that are due, and for nothing else, so that a death, a stop or the end of
Ray is noticed whatever else is under way.

* A dead scheduler is replaced by the spare process, which only has to begin. The queue stays: the new session empties it.
* A dead queue is replaced, and the scheduler begins a new session with it.
* A dead worker is replaced; meanwhile the scheduler evaluates locally. It asks workers that run, and no others.
* Workers and the spare process are there where this replica leads: nobody asks those of others, and each is 75 MB that wakes up
  150 times a second. They are started once the scheduler has read the cluster and those who schedule have gone first.
* An actor that dies again and again is replaced after ever longer pauses.

Owner: the supervisor's thread. Other threads may read `scheduler`, `workers`, `processes` and `pids`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rayched.actors.process_handle import ProcessHandle, handle_of, pid_space
from rayched.actors.queue_actor import create_queue_actor
from rayched.actors.scheduler_process import create_scheduler_process
from rayched.actors.scheduler_values import SchedulerActorConfig, WorkerPlace
from rayched.actors.worker import create_workers, worker_names
from rayched.replica.ray.local_ray import RayUnavailable
from rayched.replica.ray.pool_sizing import SIZED_EVERY_SECONDS, PoolSizing
from rayched.replica.settings import WORKERS_MAX, PoolSettings
from rayched.store.refusals import count_fenced

ANSWER_SECONDS_MAX: Final = 120.0
"""A new process that says nothing for so long never will; on a busy machine one may take half a minute."""
HELPERS_PAUSE_SECONDS_MIN: Final = 2.0
"""Between a scheduler that has read the cluster, or begun to lead, and the start of workers and a spare one: those who schedule
go first. Where they took longer to start, on a busy machine, the others wait as long as they took."""
REPLACEMENT_PAUSES_SECONDS: Final = (0.0, 0.0, 0.5, 1.0, 2.0, 5.0)
"""Before the first, second, ... replacement of an actor that did not live for LIFE_SECONDS_MIN."""
LIFE_SECONDS_MIN: Final = 10.0

log = logging.getLogger("rayched.replica")


@dataclass(frozen=True, slots=True)
class _Answer:
    """A call to an actor that shall be answered by `until`, and what to do with the answer."""

    actor: str
    what: str
    take: Callable[[Any], None]
    until: float | None


class ActorSet:
    """`create`, then `turn` again and again. `end` where the actors do not end with their Ray."""

    def __init__(
        self,
        config: SchedulerActorConfig,
        pool: PoolSettings,
        on_scheduler_lost: Callable[[bool], object],
        on_synced: Callable[[], object],
        leads: Callable[[], bool],
        restarts: Counter[str] | None = None,
    ) -> None:
        """`on_scheduler_lost` is called before another scheduler begins, and told whether a spare process is ready to be it.
        `on_synced` is called whenever one has read the cluster.

        `leads`: whether this replica does. `restarts` counts who was replaced, by kind.
        """
        self._restarts = Counter() if restarts is None else restarts
        self._config = config
        self._pool = pool
        self._sizing = PoolSizing(WORKERS_MAX)
        self._sized_at = 0.0
        """When the size of a pool that takes CPUs is looked at next."""
        self._on_scheduler_lost = on_scheduler_lost
        self._on_synced = on_synced
        self._leads = leads
        self.queue: Any = None
        self.scheduler: Any = None
        self.workers: dict[str, Any] = {}
        """By name. The scheduler knows those that are in `places`, too."""
        self.processes: dict[str, ProcessHandle] = {}
        """By name: queue, scheduler, worker-0, ..., spare. Whoever is dead or has not answered yet is missing."""
        self.places: dict[str, WorkerPlace] = {}
        """Of workers, by name, on whatever host."""
        self._spare: Any = None
        self._helpers_at = 0.0
        """When workers and the spare process may be started."""
        self._has_begun = False
        """The present scheduler can be told something."""
        self._is_synced = False
        """It has read the cluster, and gives signs of life from then on; until then no helpers are started."""
        self._lives: dict[Any, str] = {}
        """The unfinished calls, and whose they are."""
        self._handles: dict[str, Any] = {}
        self._answers: dict[Any, _Answer] = {}
        self._due: dict[str, float] = {}
        """When the dead are to be replaced."""
        self._deaths: dict[str, list[float]] = {}
        self._tellings = itertools.count(1)

    def create(self) -> None:
        """Starts those that every replica has; they are there when `turn` says so."""
        self.queue = self._born("queue", create_queue_actor(self._config.profiles, self._config.queue_flags, self._config.logs))
        self._begin_scheduler()

    def turn(self, seconds: float) -> None:
        """Waits so long for something to happen, and does what is due. Raises RayUnavailable where Ray does not do its part."""
        import ray

        waiting = [*self._lives, *self._answers]
        done, _ = ray.wait(waiting, timeout=self._wait_seconds(seconds))
        if done:
            # One finished call wakes us; whatever else has finished by now is taken with it.
            done, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        for reference in done:
            if reference in self._lives:
                self._died(self._lives.pop(reference))
            elif reference in self._answers:
                self._take(reference)
        now = time.monotonic()
        # In this order a queue comes before the scheduler that is to use it.
        for name in sorted(name for name, at in self._due.items() if at <= now):
            del self._due[name]
            self._replace(name)
        self._keep_helpers(now)
        for answer in self._answers.values():
            if answer.until is not None and answer.until <= now:
                raise RayUnavailable(f"{answer.actor}: {answer.what} took longer than {ANSWER_SECONDS_MAX:.0f} s")

    @property
    def is_synced(self) -> bool:
        return self._is_synced and "scheduler" in self._handles

    @property
    def can_be_asked(self) -> bool:
        """Whether the scheduler is more than a process that has loaded what one needs. Any thread."""
        return self._has_begun

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name, as `processes`."""
        return {name: process.pid for name, process in tuple(self.processes.items())}

    def end(self) -> None:
        for handle in self._handles.values():
            _kill(handle)

    def _wait_seconds(self, seconds: float) -> float:
        left: float = min([seconds, *(at - time.monotonic() for at in self._due.values())])
        return max(0.0, left)

    # ------------------------------------------------------------------------------------------------------ births, deaths

    def _born(self, name: str, handle: Any) -> Any:
        self._handles[name] = handle
        self._lives[handle.alive.remote()] = name

        def known(pid: int) -> None:
            # By now it may have another name, or be dead.
            for present, its in self._handles.items():
                if its is handle and (process := handle_of(pid)) is not None:
                    self.processes[present] = process

        def placed(place: WorkerPlace) -> None:
            self.places[name] = place
            self._sizing.given(name)
            self._tell_workers()
            # A pid of another host is somebody else's here.
            if place.pid_space == pid_space():
                known(place.pid)

        if name.startswith("worker-"):
            # Where it takes CPUs there may be no room for it.
            self._expect(name, "starting", handle.place.remote(), placed, bounded=not self._pool.cpus)
        else:
            self._expect(name, "starting", handle.pid.remote(), known)
        return handle

    def _died(self, name: str) -> None:
        handle = self._handles.pop(name, None)
        process = self.processes.pop(name, None)
        now = time.monotonic()
        if name in self.workers:
            self._sizing.gone(name)
            self.places.pop(name, None)
            self._answers = {reference: answer for reference, answer in self._answers.items() if answer.actor != name}
            self._tell_workers()
        deaths = [at for at in self._deaths.get(name, ()) if now - at < LIFE_SECONDS_MIN]
        pause = REPLACEMENT_PAUSES_SECONDS[min(len(deaths), len(REPLACEMENT_PAUSES_SECONDS) - 1)]
        self._deaths[name] = [*deaths, now]
        log.warning(
            "%s%s is dead, replacing it%s", name, f" (pid {process.pid})" if process else "", f" in {pause} s" if pause else ""
        )
        self._due[name] = now + pause
        self._restarts[name.partition("-")[0]] += 1
        if name == "spare":
            self._spare = None
        elif name == "scheduler":
            self._answers = {reference: answer for reference, answer in self._answers.items() if answer.actor != name}
            # One that dies again and again is given time, in which another replica may lead.
            self._on_scheduler_lost("spare" in self.processes and not pause)
        if handle is not None:
            # Ray may have lost sight of a process that still runs.
            _kill(handle)

    def _replace(self, name: str) -> None:
        match name:
            case "scheduler":
                self._begin_scheduler()
            case "queue":
                self.queue = self._born(
                    "queue", create_queue_actor(self._config.profiles, self._config.queue_flags, self._config.logs)
                )
                self._tell("use_queue", self.queue)
            case "spare":
                pass  # `_keep_helpers` does, from now on
            case _:
                self._add_workers([name])

    def _begin_scheduler(self) -> None:
        """The spare process becomes the scheduler; without one a new process does, which takes a second longer."""
        spare, self._spare = self._spare, None
        self._has_begun = self._is_synced = False
        if spare is None:
            scheduler = self._born("scheduler", create_scheduler_process(self._config.profiles))
        else:
            scheduler = self._handles["scheduler"] = self._handles.pop("spare")
            self._lives = {life: "scheduler" if name == "spare" else name for life, name in self._lives.items()}
            if (process := self.processes.pop("spare", None)) is not None:
                self.processes["scheduler"] = process
        self.scheduler = scheduler
        began = time.monotonic()
        queue, workers = self.queue, self._placed_workers()

        def begun(_: None) -> None:
            self._has_begun = True
            if self.queue is not queue:
                self._tell("use_queue", self.queue)
            if self._placed_workers() != workers:
                self._tell_workers()
            self._count_fenced(scheduler, {})
            # As long as etcd needs.
            self._expect("scheduler", "reading the cluster", scheduler.wait_until_synced.remote(), synced, bounded=False)

        def synced(_: int) -> None:
            self._is_synced = True
            self._on_synced()
            now = time.monotonic()
            self._helpers_at = now + max(HELPERS_PAUSE_SECONDS_MIN, now - began)

        self._expect("scheduler", "beginning", scheduler.begin.remote(self._config, queue, workers), begun)

    def _count_fenced(self, scheduler: Any, known: dict[str, int]) -> None:
        """Counts here what the store refuses that scheduler: a process that dies takes its own counters with it."""

        def refused(found: dict[str, int]) -> None:
            count_fenced({op: count - known.get(op, 0) for op, count in found.items()})
            self._count_fenced(scheduler, found)

        reference = scheduler.fenced_writes.remote(sum(known.values()))
        self._expect("scheduler", "telling of refused writes", reference, refused, bounded=False)

    # ------------------------------------------------------------------------------------------------------------- helpers

    def _keep_helpers(self, now: float) -> None:
        """Whoever does not lead leaves memory and CPUs to who does."""
        if not self._leads():
            self._helpers_at = max(self._helpers_at, now + HELPERS_PAUSE_SECONDS_MIN)
            self._sized_at = now
            if "spare" in self._handles:
                self._let_go("spare")
                self._spare = None
            if self.workers:
                for name in tuple(self.workers):
                    self._let_go(name)
                self._tell_workers()
        elif self._is_synced and self._helpers_at <= now:
            if self._spare is None and "spare" not in self._due:
                self._spare = self._born("spare", create_scheduler_process(self._config.profiles))
            if self._sized_at <= now:
                self._sized_at = now + SIZED_EVERY_SECONDS
                self._size_pool(now)

    def _add_workers(self, names: Sequence[str]) -> None:
        for name, handle in create_workers(names, self._config.profiles, self._pool.cpus).items():
            self._sizing.asked_for(name, time.monotonic())
            self.workers[name] = self._born(name, handle)

    def _placed_workers(self) -> dict[str, Any]:
        """Those that run. One that waits for room would keep the scheduler waiting for its answers."""
        return {name: handle for name, handle in self.workers.items() if name in self.places}

    def _tell_workers(self) -> None:
        self._tell("use_workers", self._placed_workers())

    def _size_pool(self, now: float) -> None:
        missing = self._missing_workers(now)
        if missing:
            log.info("workers: %d, and %d more are started", len(self.workers), missing)
            self._add_workers([name for name in worker_names(WORKERS_MAX) if name not in self.workers][:missing])

    def _missing_workers(self, now: float) -> int:
        import ray

        if self._pool.workers is not None:
            return self._pool.workers - len(self.workers)
        for name in self._sizing.without_room(now):
            log.info("Ray's cluster has no room for %s", name)
            self._let_go(name)
        return self._sizing.missing(len(self.workers), ray.available_resources().get("CPU", 0.0))

    def _let_go(self, name: str) -> None:
        """It is ended, and not replaced."""
        self._sizing.gone(name)
        for known in (self.workers, self.places, self.processes, self._due):
            known.pop(name, None)
        self._lives = {life: whose for life, whose in self._lives.items() if whose != name}
        self._answers = {reference: answer for reference, answer in self._answers.items() if answer.actor != name}
        if (handle := self._handles.pop(name, None)) is not None:
            _kill(handle)

    # ------------------------------------------------------------------------------------------------------------- answers

    def _tell(self, method: str, argument: Any) -> None:
        """Tells the scheduler who was replaced; one that has not begun yet learns it then."""
        if self._has_begun and "scheduler" in self._handles:
            self._expect(
                "scheduler", method, getattr(self.scheduler, method).remote(argument, next(self._tellings)), lambda _: None
            )

    def _expect(self, actor: str, what: str, reference: Any, take: Callable[[Any], None], *, bounded: bool = True) -> None:
        self._answers[reference] = _Answer(actor, what, take, time.monotonic() + ANSWER_SECONDS_MAX if bounded else None)

    def _take(self, reference: Any) -> None:
        import ray

        answer = self._answers.pop(reference)
        try:
            value = ray.get(reference)
        except ray.exceptions.RayActorError:
            # Its unfinished call tells the same.
            log.debug("%s: %s: it is dead", answer.actor, answer.what)
        except ray.exceptions.RayError as error:
            log.error("%s: %s failed: %s", answer.actor, answer.what, _last_line(error))
            if (handle := self._handles.get(answer.actor)) is not None:
                # What does not do its part is replaced like what has died.
                _kill(handle)
        else:
            answer.take(value)


def _kill(handle: Any) -> None:
    import ray

    with contextlib.suppress(ray.exceptions.RayError):
        ray.kill(handle)


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
