"""Supervision of a replica's Ray and its actors: one thread that is the only one to start, replace and end them.

What dies within a Ray is replaced by its ActorSet. A scheduler whose place a spare process takes is a new term of the same
leader (docs/adr/0001): whatever the dead one still had under way is refused. Without a spare process, where it had long to read
(docs/adr/0011), and when Ray itself ends, this replica stands down at once, for the schedulers of the others are warm. It stands
again when it has one that has read the cluster.

Fills the server's SchedulerPort, and is the LeadersWork of the election.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from leader.clock import NS_PER_SECOND, boottime
from rayched.actors.configured import ProfilesText
from rayched.actors.deciding_cell import pod_being_decided
from rayched.actors.log_sending import LogTarget
from rayched.actors.scheduler_values import SchedulerActorConfig
from rayched.queue.flags import QueueFlags
from rayched.replica.families import merged
from rayched.replica.ray.actor_answers import awaited, unanswered
from rayched.replica.ray.actor_set import ActorSet
from rayched.replica.ray.local_ray import LocalRay, RayUnavailable, StartCancelled, connect_to, disconnect
from rayched.replica.ray.processes import end_tree
from rayched.replica.ray.scheduler_questions import SchedulerQuestions
from rayched.replica.scheduler_settings import SchedulerSettings
from rayched.replica.settings import ReplicaSettings
from rayched.replica.suspicions import Suspicions
from rayched.store.keys import Keys

_POLL_SECONDS: Final = 0.2
"""Between two looks at Ray's own processes and at a request to stop; actors are noticed at once."""
_METRICS_SECONDS_MAX: Final = 2.0
_DRAIN_SECONDS_MAX: Final = 2.0
_HUNG_SECONDS: Final = 5.0
"""A scheduler without a sign of life for so long is ended. A leader's loses the lease before (leadership.py); this is for those
of standbys, who might win the next election."""
_LOOK_SECONDS_MAX: Final = 1.0
"""Where the supervisor itself was away for longer than this, the scheduler gets its time anew: the whole replica stood still."""
_REPLACED_SECONDS_MAX: Final = 30.0
"""For so long a replica without a scheduler is ready: one that is replaced has read a large cluster by then."""
_END_SECONDS_MAX: Final = 3.0
"""How long the end of Ray is waited for; it takes a tenth of that."""
_SUSPICIOUS_SECONDS: Final = 1.5
"""A cycle that gives no sign of life for so long is told of before the lease ends."""
_RESTART_PAUSES_SECONDS: Final = (0.0, 0.0, 1.0, 2.0, 5.0)
"""Before the first, second, ... start of Ray in a row of failures."""
SPARE_READS_MAX: Final = 1_000
"""Objects that a spare process may have to read before it decides: each takes it 50 to 70 µs. Another replica has read them."""
_STARTS_MAX: Final = 5
"""A replica that has never had a Ray after so many starts will not get one."""

log = logging.getLogger("rayched.replica")


class ElectionTerms(Protocol):
    """What supervision asks of the election. Nothing happens where this replica does not lead."""

    def begin_new_term(self) -> None: ...

    def stand(self) -> None: ...

    def stand_down(self) -> None: ...


class ActorSupervisor:
    """Owner of Ray and the actors of one replica."""

    def __init__(
        self,
        settings: ReplicaSettings,
        scheduler: SchedulerSettings,
        endpoints: tuple[str, ...],
        belief_file: Path,
        last_tick: Callable[[], int | None],
        objects: Callable[[], int],
        logs: LogTarget | None = None,
    ) -> None:
        """`last_tick`: when the scheduler last gave a sign of life, CLOCK_BOOTTIME in ns. `objects`: how many the cluster has.
        `logs`: where the actors' logs go."""
        self._settings = settings
        self._last_tick = last_tick
        self._objects = objects
        profiles = ProfilesText(scheduler.text, scheduler.source)
        flags = QueueFlags(settings.unschedulable_seconds_max, settings.head_of_line_limit, settings.fair_namespaces)
        self._config = SchedulerActorConfig(
            endpoints,
            settings.root,
            str(belief_file),
            profiles,
            settings.seed,
            settings.shard_always,
            flags,
            logs,
            settings.identity,
        )
        self._ray: LocalRay | None = None
        self._actors: ActorSet | None = None
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._leads = threading.Event()
        self._failures = 0
        self.restarts: Counter[str] = Counter()
        """By kind of actor, and of Ray itself."""
        self._synced_at: float | None = None
        """When a scheduler that has read the cluster was there last; None: never."""
        self.questions = SchedulerQuestions(lambda: self._actors, settings.identity, profiles.text, self._own_pids)
        """What the server asks."""
        self._asked_for_metrics: dict[str, asyncio.Future[list[Metric]]] = {}
        """Of each actor the last question; one that does not answer is not asked again meanwhile."""
        self.terms: ElectionTerms | None = None
        self._own_directory = belief_file.parent
        self._suspicions = Suspicions(endpoints, Keys(settings.root), settings.identity)
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends actors and Ray. Returns when they are gone."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS_MAX)
        if self._thread.is_alive():
            log.warning("Ray does not end by itself, ending its processes")
            if self._ray is not None and (guardian := self._ray.guardian_pid) is not None:
                end_tree(guardian)
        self._ended.set()

    def wait_until_ended(self) -> None:
        """Returns when supervision is over: asked to stop, or given up."""
        self._ended.wait()

    # -------------------------------------------------------------------------------------------------- the leader's work

    def begin(self, epoch: int) -> None:
        """The scheduler reads the belief cell by itself, and at once where it is told to."""
        log.info("leading under epoch %d", epoch)
        self._leads.set()
        self._tell_scheduler("wake")

    def expect_to_lead(self) -> None:
        self._tell_scheduler("expect_to_lead")

    def _tell_scheduler(self, method: str) -> None:
        """Does not wait for an answer."""
        actors = self._actors
        if actors is None or not actors.can_be_asked:
            return
        import ray

        # One that is dead is replaced, and the next one reads all of it when it begins.
        with contextlib.suppress(ray.exceptions.RayError):
            getattr(actors.scheduler, method).remote()

    def drain(self) -> None:
        self._leads.clear()
        actors = self._actors
        if actors is None:
            return
        import ray

        try:
            drained = ray.get(actors.scheduler.drained.remote(_DRAIN_SECONDS_MAX), timeout=_DRAIN_SECONDS_MAX + 0.5)
        except (ray.exceptions.RayError, TimeoutError):
            # A dead actor writes nothing, nor does one that has not begun; a hung one is ended by `end_now`.
            return
        log.info("writing has stopped" if drained else "writes are still under way; the epoch guards them")

    def tell_guardian(self, line: bytes) -> None:
        """Of the term that this replica holds, where there is a guardian (published_term.py)."""
        ray = self._ray
        if ray is not None:
            ray.publish(line)

    def end_now(self) -> None:
        actors = self._actors
        if actors is not None and (process := actors.processes.get("scheduler")):
            log.info("ending the scheduler, process %d", process.pid)
            process.send(signal.SIGKILL)

    # --------------------------------------------------------------------------------------------------------- what it says

    def problem(self) -> str | None:
        """None, or why this replica has no scheduler that could decide; one that is being replaced is none yet. Any thread."""
        synced_at = self._synced_at
        if synced_at is None:
            return "the scheduler has not read the cluster yet"
        seconds = boottime() - synced_at
        return f"no scheduler that has read the cluster for {seconds:.0f} s" if seconds > _REPLACED_SECONDS_MAX else None

    async def metrics(self) -> list[Metric]:
        """What the actors count, one family of each name. Whoever is not there or does not answer is left out, and says so."""
        actors = self._actors
        names = ("queue", "scheduler")
        found: list[list[Metric] | None] = [None, None]
        if actors is not None:
            asked = names if actors.can_be_asked else names[:1]
            found[: len(asked)] = await asyncio.gather(*(self._metrics_of(name, getattr(actors, name)) for name in asked))
        answers = GaugeMetricFamily("rayched_actor_up", "Whether the actor answered this scrape: 1 or 0.", labels=["actor"])
        for name, families in zip(names, found, strict=True):
            answers.add_metric([name], families is not None)
        starts = CounterMetricFamily("rayched_actor_restarts", "Processes of actors that were replaced.", labels=["kind"])
        for kind, count in sorted(self.restarts.items()):
            starts.add_metric([kind], count)
        return merged([answers, starts], *(families for families in found if families is not None))

    async def _metrics_of(self, name: str, actor: Any) -> list[Metric] | None:
        asked = self._asked_for_metrics.get(name)
        try:
            if asked is None or asked.done():
                asked = self._asked_for_metrics[name] = asyncio.ensure_future(awaited(actor.metrics.remote()))
            return await asyncio.wait_for(asyncio.shield(asked), _METRICS_SECONDS_MAX)
        except Exception as error:
            unanswered(name, error)
            return None

    def _own_pids(self) -> dict[str, int]:
        own = {"replica": os.getpid()}
        if self._ray is not None and self._ray.guardian_pid is not None:
            own["guardian"] = self._ray.guardian_pid
        return own

    # ------------------------------------------------------------------------------------------------------------- thread

    def _run(self) -> None:
        try:
            while not self._stopping.wait(_RESTART_PAUSES_SECONDS[min(self._failures, len(_RESTART_PAUSES_SECONDS) - 1)]):
                try:
                    self._live()
                except StartCancelled:
                    return
                except RayUnavailable as error:
                    log.error("%s; starting it anew", error)
                except Exception:
                    # Ray's own exceptions are many. Whatever it was, a new Ray has nothing to do with it.
                    log.exception("supervision of Ray failed; starting it anew")
                finally:
                    self._end_all()
                self._failures += 1
                self.restarts["ray"] += 1
                if self._failures >= _STARTS_MAX and self._synced_at is None:
                    log.critical("giving up: no scheduler after %d starts of Ray", self._failures)
                    return
        finally:
            self._ended.set()

    def _live(self) -> None:
        """One Ray, from its start to its end or ours. Raises RayUnavailable."""
        if self._settings.ray_address is None:
            self._ray = LocalRay(self._settings.log_format)
            self._ray.start(self._stopping.is_set)
        else:
            connect_to(self._settings.ray_address, self._stopping.is_set)
        pool, leads = self._settings.pool, self._leads.is_set
        actors = ActorSet(self._config, pool, self._scheduler_lost, self._synced, leads, self.restarts)
        actors.create()
        self._actors = actors
        looked = alive_since = boottime()
        while not self._stopping.is_set():
            if self._ray is not None and (what := self._ray.what_ended()):
                raise RayUnavailable(f"Ray has ended: {what} is gone")
            actors.turn(_POLL_SECONDS)
            now = boottime()
            if actors.is_synced:
                self._synced_at = now
            if not actors.is_synced or now - looked > _LOOK_SECONDS_MAX:
                alive_since = now
            looked = now
            silent = now - max(alive_since, (self._last_tick() or 0) / NS_PER_SECOND)
            if silent > _SUSPICIOUS_SECONDS:
                self._suspicions.note(pod_being_decided(self._own_directory), now)
            if silent > _HUNG_SECONDS:
                log.error("the scheduler has shown no sign of life for %.0f s", _HUNG_SECONDS)
                self.end_now()
                alive_since = now

    def _scheduler_lost(self, has_spare: bool) -> None:
        self._suspicions.note(pod_being_decided(self._own_directory), boottime())
        if self.terms is None:
            return
        if has_spare and (objects := self._objects()) > SPARE_READS_MAX:
            log.info("the spare process would have %d objects to read first: a replica with a loaded cache may lead", objects)
            has_spare = False
        if has_spare:
            self.terms.begin_new_term()
        else:
            self.terms.stand_down()

    def _synced(self) -> None:
        log.info("the scheduler has read the cluster")
        self._failures, self._synced_at = 0, boottime()
        if self.terms is not None:
            self.terms.stand()

    def _end_all(self) -> None:
        if not self._stopping.is_set():
            self.end_now()
        actors, self._actors = self._actors, None
        if not self._stopping.is_set() and self.terms is not None:
            self.terms.stand_down()
        if self._ray is not None:
            self._ray.stop()
            self._ray = None
        elif actors is not None:
            actors.end()
            disconnect()
