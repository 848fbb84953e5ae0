"""Supervision of a replica's actors: Ray, QueueActor, SchedulerActor, workers. What dies is replaced, and etcd tells it the rest.

One thread owns all of it and is the only one that creates and ends actors. It waits for one unfinished call of each actor, which
fails within milliseconds of the actor's death.

* A dead SchedulerActor is replaced together with its QueueActor. If this replica leads, a new term begins first, so that whatever
  the dead one still had under way is refused.
* A dead QueueActor is replaced, and the SchedulerActor begins a new session with it.
* A dead worker is replaced; meanwhile the SchedulerActor evaluates locally.
* When Ray itself ends, all of it is started anew.

Fills the server's SchedulerPort, and is the LeadersWork of the election.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from rayched.actors.configured import ProfilesText
from rayched.actors.queue_actor import create_queue_actor
from rayched.actors.scheduler_actor import SchedulerActorConfig, SchedulerStatus, create_scheduler_actor
from rayched.actors.worker import create_workers
from rayched.replica.local_ray import LocalRay, RayUnavailable, connect_to
from rayched.replica.scheduler_settings import SchedulerSettings
from rayched.replica.settings import ReplicaSettings
from rayched.server.ports import NotLeading
from rayched.v1.services_pb2 import GetSchedulerStatusResponse

_POLL_SECONDS: Final = 0.2
"""Between two looks at Ray's own processes; actors are noticed at once."""
_ANSWER_SECONDS_MAX: Final = 10.0
_DRAIN_SECONDS_MAX: Final = 2.0
_RESTART_PAUSES_SECONDS: Final = (0.0, 0.5, 1.0, 2.0, 5.0)
"""Before the first, second, ... replacement within a row of failures."""

log = logging.getLogger("rayched.replica")


class NewTerms(Protocol):
    """What supervision asks of the election."""

    def begin_new_term(self) -> object: ...

    def holds_lease(self) -> bool: ...


@dataclass(slots=True)
class _Actors:
    """One generation of actors: handles, process ids, and the calls that end with them."""

    queue: Any
    scheduler: Any
    workers: list[Any]
    pids: dict[str, int] = field(default_factory=dict)
    lives: dict[Any, str] = field(default_factory=dict)
    """Unfinished calls, and whose they are: queue, scheduler, worker-0, ..."""


class ActorSupervisor:
    """Owner of Ray and the actors of one replica."""

    def __init__(
        self, settings: ReplicaSettings, scheduler: SchedulerSettings, endpoints: tuple[str, ...], belief_file: Path
    ) -> None:
        self._settings = settings
        self._profiles = ProfilesText(scheduler.text, scheduler.source)
        self._config = SchedulerActorConfig(
            endpoints, settings.root, str(belief_file), self._profiles, settings.seed, settings.shard_always
        )
        self._ray: LocalRay | None = None
        self._actors: _Actors | None = None
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._failures = 0
        self.ready = threading.Event()
        """The SchedulerActor has read the cluster for the first time, or there will be none."""
        self.leadership: NewTerms | None = None
        self.on_ray_connected: Callable[[], object] = lambda: None
        """Called on the supervisor's thread whenever this process has become a driver of Ray."""
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def request_stop(self) -> None:
        """Nothing is replaced any more."""
        self._stopping.set()
        self.ready.set()

    def stop(self) -> None:
        """Ends actors and Ray. Returns when they are gone."""
        self.request_stop()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def wait_until_ended(self) -> None:
        """Returns when supervision is over: asked to stop, or given up."""
        self._ended.wait()

    # -------------------------------------------------------------------------------------------------- the leader's work

    def begin(self, epoch: int) -> None:
        """The SchedulerActor reads the belief cell by itself."""
        log.info("leading under epoch %d", epoch)

    def drain(self) -> None:
        actors = self._actors
        if actors is None:
            return
        import ray

        try:
            drained = ray.get(actors.scheduler.drained.remote(_DRAIN_SECONDS_MAX), timeout=_DRAIN_SECONDS_MAX + 0.5)
        except (ray.exceptions.RayError, TimeoutError):
            # A dead actor writes nothing, and a hung one is ended by `end_now`.
            return
        log.info("writing has stopped" if drained else "writes are still under way; the epoch guards them")

    def end_now(self) -> None:
        actors = self._actors
        if actors is not None and (pid := actors.pids.get("scheduler")):
            log.warning("the scheduler did not stop in time, ending process %d", pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # ------------------------------------------------------------------------------------------------- the server's port

    async def status(self) -> GetSchedulerStatusResponse:
        actors = self._actors
        if actors is None:
            raise NotLeading
        import ray

        try:
            status: SchedulerStatus = await asyncio.wait_for(_awaited(actors.scheduler.status.remote()), _ANSWER_SECONDS_MAX)
        except (ray.exceptions.RayError, TimeoutError) as error:
            raise NotLeading from error
        if not status.leads:
            raise NotLeading
        return GetSchedulerStatusResponse(
            holder=self._settings.identity,
            epoch=status.epoch,
            revision=status.revision,
            nodes=status.nodes,
            bound_pods=status.bound_pods,
            assumed_pods=status.assumed_pods,
            pending_pods=status.pending_pods,
            attempts=status.attempts,
            workers=len(actors.workers),
            worker_evaluations=status.worker_evaluations,
            pids=self._pids(actors),
        )

    def _pids(self, actors: _Actors) -> dict[str, int]:
        own = {"replica": os.getpid()}
        if self._ray is not None and self._ray.guardian_pid is not None:
            own["guardian"] = self._ray.guardian_pid
        return own | actors.pids

    # ------------------------------------------------------------------------------------------------------------- thread

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._stopping.wait(_RESTART_PAUSES_SECONDS[min(self._failures, len(_RESTART_PAUSES_SECONDS) - 1)])
                try:
                    self._live()
                except RayUnavailable as error:
                    self._failures += 1
                    log.error("%s", error)
                    if self._failures >= len(_RESTART_PAUSES_SECONDS) and not self.ready.is_set():
                        log.critical("giving up: Ray does not start")
                        return
                finally:
                    self._end_all()
        finally:
            self.ready.set()
            self._ended.set()

    def _live(self) -> None:
        """One Ray, from its start to its end. Raises RayUnavailable."""
        if self._stopping.is_set():
            return
        if self._settings.ray_address is None:
            self._ray = LocalRay()
            self._ray.start()
        else:
            connect_to(self._settings.ray_address)
        self.on_ray_connected()
        self._create()
        while not self._stopping.is_set():
            if self._ray is not None and self._ray.ended():
                raise RayUnavailable("Ray has ended; starting it anew")
            self._replace_dead()

    def _replace_dead(self) -> None:
        """Waits a moment for a death, and replaces what died."""
        import ray

        actors = self._actors
        assert actors is not None
        dead, _ = ray.wait(list(actors.lives), timeout=_POLL_SECONDS)
        if not dead or self._stopping.is_set():
            self._failures = 0 if self.ready.is_set() else self._failures
            return
        names = {actors.lives.pop(life) for life in dead}
        log.warning("dead: %s", ", ".join(sorted(names)))
        if self._ray is not None and self._ray.ended():
            return
        if "scheduler" in names:
            self._replace_scheduler()
        elif "queue" in names:
            self._replace_queue(actors)
        if any(name.startswith("worker") for name in names):
            self._replace_workers()

    def _create(self) -> None:
        """A new generation: queue, workers, scheduler."""
        queue = create_queue_actor(self._profiles)
        workers = create_workers(self._settings.workers, self._profiles)
        self._begun(queue, workers)

    def _begun(self, queue: Any, workers: list[Any], before: _Actors | None = None) -> None:
        """A scheduler for these, synced. Workers of an earlier generation keep their lives: a second call would take the thread
        that they work on."""
        actors = _Actors(queue, create_scheduler_actor(self._config, queue, workers), workers)
        if before is not None:
            actors.pids = {name: pid for name, pid in before.pids.items() if name.startswith("worker")}
            actors.lives = {life: name for life, name in before.lives.items() if name.startswith("worker")}
        new = [("queue", queue), ("scheduler", actors.scheduler), *(_numbered(workers) if before is None else [])]
        for name, handle in new:
            self._answer(name, handle.pid.remote, actors)
            actors.lives[handle.alive.remote()] = name
        self._actors = actors
        self._wait_until_synced(actors)

    def _wait_until_synced(self, actors: _Actors) -> None:
        """Returns when the scheduler has read the cluster, or something died, or we are stopping."""
        import ray

        synced = actors.scheduler.wait_until_synced.remote()
        while not self._stopping.is_set():
            done, _ = ray.wait([synced, *actors.lives], timeout=_POLL_SECONDS)
            if done:
                if synced in done:
                    with contextlib.suppress(ray.exceptions.RayError):
                        ray.get(synced)
                        self.ready.set()
                return

    def _replace_scheduler(self) -> None:
        actors = self._actors
        assert actors is not None
        if self.leadership is not None and self.leadership.holds_lease():
            # The dead one's last writes may still be on their way: they belong to a term that is over now.
            self.leadership.begin_new_term()
        _kill(actors.queue)
        self._begun(create_queue_actor(self._profiles), actors.workers, actors)

    def _replace_queue(self, actors: _Actors) -> None:
        import ray

        queue = create_queue_actor(self._profiles)
        try:
            self._answer("queue", queue.pid.remote, actors)
            ray.get(actors.scheduler.use_queue.remote(queue), timeout=_ANSWER_SECONDS_MAX)
        except (ray.exceptions.RayError, TimeoutError) as error:
            log.warning("the scheduler did not take a new queue: %s", error)
        actors.queue = queue
        actors.lives[queue.alive.remote()] = "queue"

    def _replace_workers(self) -> None:
        import ray

        actors = self._actors
        assert actors is not None
        lost = [number for number in range(len(actors.workers)) if f"worker-{number}" not in actors.lives.values()]
        for number, worker in zip(lost, create_workers(len(lost), self._profiles), strict=True):
            actors.workers[number] = worker
            self._answer(f"worker-{number}", worker.pid.remote, actors)
            actors.lives[worker.alive.remote()] = f"worker-{number}"
        with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
            ray.get(actors.scheduler.use_workers.remote(actors.workers), timeout=_ANSWER_SECONDS_MAX)

    def _answer(self, name: str, call: Callable[[], Any], actors: _Actors) -> None:
        """The actor's process id. Raises RayUnavailable where it does not answer."""
        import ray

        try:
            actors.pids[name] = ray.get(call(), timeout=_ANSWER_SECONDS_MAX * 3)
        except (ray.exceptions.RayError, TimeoutError) as error:
            raise RayUnavailable(f"actor {name} does not start: {str(error).splitlines()[-1]}") from error

    def _end_all(self) -> None:
        actors, self._actors = self._actors, None
        if self._ray is not None:
            self._ray.stop()
            self._ray = None
        elif actors is not None:
            import ray

            for handle in (actors.scheduler, actors.queue, *actors.workers):
                _kill(handle)
            ray.shutdown()


def _numbered(workers: list[Any]) -> list[tuple[str, Any]]:
    return [(f"worker-{number}", worker) for number, worker in enumerate(workers)]


def _kill(handle: Any) -> None:
    import ray

    with contextlib.suppress(ray.exceptions.RayError):
        ray.kill(handle)


async def _awaited(reference: Any) -> Any:
    return await reference
