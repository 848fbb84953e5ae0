"""The SchedulerActor: SchedulerCore in a process of its own, with its own connection to etcd.

One loop thread owns the core. Everything reaches it through one inbox: deliveries of the watch, answers of transactions, answers
of the queue, which it reads itself, and questions of the actor's methods. It sleeps while nothing is there and nothing is due, at
most IDLE_SECONDS, and writes a sign of life at each turn.

Ray's threads run the methods; none of them touches the core.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import grpc
from prometheus_client import Metric

from leader.belief import BeliefCell
from leader.clock import boottime
from leader.member_channel import MemberChannel
from leader.successive_channel import SuccessiveChannel
from rayched.actors.configured import profiles_of
from rayched.actors.deciding_cell import DecidingCell
from rayched.actors.event_room_cell import EventRoomCell
from rayched.actors.explanations import explained
from rayched.actors.foreign_binding_calls import BINDINGS, BINDINGS_AT_ONCE, ForeignBound, bound_by
from rayched.actors.garbage import collect_rarely
from rayched.actors.inbox import Inbox, LatestCalls
from rayched.actors.log_sending import send_logs
from rayched.actors.placement import on_this_host
from rayched.actors.questions import QuestionQueue, answer_now
from rayched.actors.queue_partner import QueuePartner
from rayched.actors.scheduler_links import ClusterWatch, Transactions, Watch
from rayched.actors.scheduler_values import Allocated, Explained, PlanBasis, SchedulerActorConfig, SchedulerStatus
from rayched.actors.shards import RayShards
from rayched.core.attempt_metrics import Told
from rayched.core.exchange.messages import ExchangeAnswer
from rayched.core.ports import Ports
from rayched.core.scheduler_core import SchedulerCore
from rayched.core.scheduler_metrics import scheduler_metrics
from rayched.core.writes.foreign_bindings import ForeignBinding
from rayched.core.writes.window import Send
from rayched.snapshot.allocated_rows import allocated_rows
from rayched.snapshot.snapshot import Snapshot
from rayched.store.errors import store_error
from rayched.store.event_writes import LEASE_SECONDS
from rayched.store.fencing import Fence
from rayched.store.io.client import StoreClient
from rayched.store.io.watcher import Watcher
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Delivery, ListedAll
from rayched.v1.services_pb2 import ExplainRequest

IDLE_SECONDS: Final = 0.1
"""Between two signs of life, and two looks at the belief that nobody has asked for."""
INPUT_SECONDS: Final = 0.02
"""Inputs are taken so long at a stretch: a flood of changes does not starve decisions, and turns stay worth their cost."""
DELIVERIES_MAX: Final = 64
"""Deliveries of the watch that wait for the loop."""
QUESTIONS: Final = "questions"
"""Ray's concurrency group for methods whose answer may take long: `explain`, `plan_basis`, `allocated_resources`."""
QUESTIONS_AT_ONCE: Final = 8
"""Questions of that group that wait in the process; the others wait at Ray."""
log = logging.getLogger(__name__)


class SchedulerActor:
    """Shell of the SchedulerCore. Its methods may be called from several threads."""

    def __init__(self, config: SchedulerActorConfig, queue_actor: Any, workers: Mapping[str, Any]) -> None:
        collect_rarely()
        keys = Keys(config.root)
        loaded = profiles_of(config.profiles)
        self._incarnation = uuid.uuid4().hex
        self._belief = BeliefCell.open(config.belief_path)
        self._fence = Fence(self._belief)
        self._inbox = Inbox()
        """Bounded by what may be under way: DELIVERIES_MAX, a window of transactions, an exchange, a question a thread of Ray."""
        self._own_directory = Path(config.belief_path).parent
        self._store, self._watcher = self._connect(config, keys)
        self._queue = QueuePartner(self._own_directory, self._inbox, self._exchange_answered)
        self._queue.take(queue_actor)
        snapshot = Snapshot()
        self._shards = RayShards(snapshot, loaded.profiles, self._tick, boottime, always=config.shard_always, answered=self.wake)
        self._shards.use(workers)
        self._latest = LatestCalls()
        self._deciding = DecidingCell.create(self._own_directory)
        ports = Ports(
            belief=self._epoch,
            clock=boottime,
            wall_clock=time.time,
            progress=self._tick,
            work_clock=time.thread_time,
            deciding=self._deciding.write,
            room_for_events=EventRoomCell.at(self._own_directory).read,
            others_wait=self._inbox.has_any,
        )
        self._core = SchedulerCore(
            keys,
            loaded.profiles,
            config.seed,
            incarnation=self._incarnation,
            first_session=time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000,
            ports=ports,
            snapshot=snapshot,
            shards=self._shards.of_profile,
            identity=config.identity,
            fair_namespaces=config.queue_flags.fair_namespaces,
        )
        self._core.term.on_catching_up = self._watcher.hurry
        send_logs(config.logs, "scheduler", self._log_context)
        if log.isEnabledFor(logging.DEBUG):
            self._core.measures.tell = self._log_attempt
        self._deliveries = threading.BoundedSemaphore(DELIVERIES_MAX)
        self._questions = QuestionQueue(boottime)
        """Of those that take long."""
        self._turn_at: float | None = None
        self._fenced: dict[str, int] = {}
        self._fenced_changed = threading.Condition()
        self._synced = threading.Event()
        self._dead = threading.Event()
        self._loop = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._watcher.start()
        self._loop.start()

    def _connect(self, config: SchedulerActorConfig, keys: Keys) -> tuple[Transactions, Watch]:
        """Etcd: where transactions go, and who follows it."""
        # A member that fell silent with the former leader is not waited for; batches may be sent twice (window.py).
        members, followed = MemberChannel(config.etcd_endpoints), SuccessiveChannel(config.etcd_endpoints)
        watcher = Watcher(followed, keys.cluster_prefix, self._watched, on_failure=self._fail)
        return StoreClient(members), ClusterWatch(watcher, members)

    # ------------------------------------------------------------------------------------------------------ actor methods

    def pid(self) -> int:
        return os.getpid()

    def wait_until_synced(self) -> int:
        """Returns this process's id when the cluster has been read."""
        self._synced.wait()
        return os.getpid()

    def status(self) -> SchedulerStatus:
        status: SchedulerStatus = self._ask(self._status)
        return status

    def metrics(self) -> list[Metric]:
        families: list[Metric] = self._ask(lambda: scheduler_metrics(self._core, self._shards.counts))
        return families

    def plan_basis(self) -> PlanBasis:
        basis: PlanBasis = self._ask_at_leisure(self._plan_basis)
        return basis

    def allocated_resources(self, position: str, others: tuple[str, ...]) -> Allocated | None:
        """None: the cluster has not been read yet."""
        found: Allocated | None = self._ask_at_leisure(lambda: self._allocated(position, others))
        return found

    def explain(self, request: ExplainRequest) -> Explained:
        answer: Explained = self._ask_at_leisure(lambda: explained(self._core, request))
        return answer

    def bind(self, wanted: ForeignBinding) -> ForeignBound:
        return bound_by(self._inbox, self._core, wanted)

    def fenced_writes(self, known: int) -> dict[str, int]:
        """Writes that the store refused because their epoch was over, by what they were for, once they are more than known."""
        with self._fenced_changed:
            self._fenced_changed.wait_for(lambda: sum(self._fenced.values()) > known)
            return dict(self._fenced)

    def expect_to_lead(self) -> None:
        """This replica may lead soon, so members of etcd that are silent are to be found out now. Does not wait."""
        self._watcher.hurry()

    def wake(self) -> None:
        """What is waited for is there: an answer of a worker, or a new belief. Any thread; does not wait."""
        self._inbox.put(_nothing)

    def drained(self, seconds: float) -> bool:
        """Whether nothing was being written any more within the time."""
        deadline = time.monotonic() + seconds
        while not self._ask(lambda: self._core.drained):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    def activate(self, names: Sequence[str]) -> None:
        """Pods, by namespace/name, to be tried at once whatever they wait for."""
        self._ask(lambda: self._core.activate(tuple(names)))

    def use_queue(self, queue_actor: Any, order: int) -> None:
        """The queue died; this one takes its place. `order`: see LatestCalls."""

        def replace() -> None:
            self._queue.take(queue_actor)
            self._core.queue_lost()

        self._ask(lambda: self._latest.carry_out("queue", order, replace))

    def use_workers(self, workers: Mapping[str, Any], order: int) -> None:
        """By name: these, and no others, from now on. `order`: see LatestCalls."""
        self._ask(lambda: self._latest.carry_out("workers", order, lambda: self._shards.use(workers)))

    def alive(self) -> None:
        """Never returns."""
        self._dead.wait()

    # --------------------------------------------------------------------------------------------------------------- loop

    def _run(self) -> None:
        try:
            busy = False
            while True:
                self._take_inputs(0.0 if busy else self._wait_seconds())
                if self._queue.wants_session():
                    self._core.queue_lost()
                turn = self._core.turn()
                for send in turn.sends:
                    self._send(send)
                if turn.exchange is not None:
                    self._queue.send(turn.exchange)
                if turn.lease_wanted:
                    self._grant_lease()
                self._turn_at = turn.turn_at
                for problem in self._core.problems.take():
                    log.warning("%s", problem)
                self._tick()
                self._tell_fenced()
                self._queue.end_if_hung()
                self._questions.answer_one()
                busy = self._core.decide() or self._core.idle()
        except BaseException as error:
            self._fail(error)

    def _wait_seconds(self) -> float:
        due = min((at for at in (self._turn_at, self._queue.session_at, self._questions.due) if at is not None), default=None)
        return IDLE_SECONDS if due is None else min(IDLE_SECONDS, max(0.0, due - boottime()))

    def _take_inputs(self, seconds: float) -> None:
        """What is there, as far as it is done in INPUT_SECONDS; if nothing is, what comes within the time.

        The rest waits for a turn, too, once there is a full call for the queue: it works on that meanwhile.
        """
        self._inbox.wait(seconds)
        until = boottime() + INPUT_SECONDS
        while (call := self._inbox.take()) is not None:
            call()
            link = self._core.link
            if (link is not None and link.has_full_call) or boottime() >= until:
                return

    def _send(self, send: Send) -> None:
        def answered(future: Any) -> None:
            try:
                answer = future.result()
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                answer = store_error(error)
            self._inbox.put(lambda: self._core.transaction_answered(send.number, answer))

        self._store.txn_future(send.content).add_done_callback(answered)

    def _grant_lease(self) -> None:
        def answered(future: Any) -> None:
            try:
                lease = int(future.result().ID)
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                log.warning("no lease for events: %s", store_error(error))
                lease = None
            self._inbox.put(lambda: self._core.lease_granted(lease))

        self._store.grant_lease_future(LEASE_SECONDS).add_done_callback(answered)

    def _exchange_answered(self, answer: ExchangeAnswer) -> None:
        self._core.exchange_answered(answer)

    def _tell_fenced(self) -> None:
        fenced = self._core.window.fenced
        if fenced and fenced.total() != sum(self._fenced.values()):
            with self._fenced_changed:
                self._fenced = dict(fenced)
                self._fenced_changed.notify_all()

    # ------------------------------------------------------------------------------------------------------------- inputs

    def _watched(self, delivery: Delivery) -> None:
        """On the watcher's thread, which waits here while the loop is behind."""

        def absorb() -> None:
            self._deliveries.release()
            self._core.watched(delivery)
            if isinstance(delivery, ListedAll) and not self._synced.is_set():
                # What was just read lives as long as the process: the collector need not look at it again.
                gc.freeze()
                self._synced.set()

        self._deliveries.acquire()
        self._inbox.put(absorb)

    def _ask(self, question: Callable[[], Any]) -> Any:
        """The answer of the loop thread, at its next turn. Raises what the question raises."""
        told: Future[Any] = Future()
        self._inbox.put(lambda: answer_now(question, told))
        return told.result()

    def _ask_at_leisure(self, question: Callable[[], Any]) -> Any:
        """The same of a question that may take long: it gets its turn beside those of others."""
        told: Future[Any] = Future()
        self._inbox.put(lambda: self._questions.put(question, told))
        return told.result()

    def _status(self) -> SchedulerStatus:
        core = self._core
        attempts, slis = core.measures.bound_durations()
        return SchedulerStatus(
            leads=core.term.leads,
            epoch=core.term.epoch if core.term.leads else 0,
            revision=core.cache.revision,
            nodes=core.snapshot.n_nodes,
            bound_pods=core.scheduler.occupancy.n_observed,
            assumed_pods=core.scheduler.occupancy.n_assumed,
            pending_pods=dict(core.link.counts) if core.link is not None else {},
            attempts=dict(core.attempts),
            worker_evaluations=self._shards.counts.evaluations,
            worker_local_evaluations=self._shards.counts.local_evaluations,
            handover_seconds=self._shards.handover_seconds,
            pool=self._shards.pool(),
            events=dict(core.events.counts),
            attempt_durations=attempts,
            sli_durations=slis,
            pid=os.getpid(),
        )

    def _plan_basis(self) -> PlanBasis:
        core = self._core
        rows = tuple(core.snapshot.names[: core.snapshot.n_rows])
        return PlanBasis(core.term.leads, core.cache.revision, core.scheduler.draws(), rows)

    def _allocated(self, position: str, others: tuple[str, ...]) -> Allocated | None:
        if not self._synced.is_set():
            return None
        core = self._core
        return Allocated(core.cache.revision, allocated_rows(core.snapshot, self._incarnation, position, others))

    def _log_context(self) -> dict[str, int]:
        """On any thread."""
        term = self._core.term
        return {"epoch": term.epoch} if term.leads else {}

    def _log_attempt(self, told: Told) -> None:
        cycle = told.cycle if told.cycle >= 0 else self._core.scheduler.draws().decisions - 1
        fields = {"pod": told.pod, "attempt": told.attempt, "cycle": cycle, "node": told.node or None}
        if told.node:
            log.debug("pod %s is bound to node %s", told.pod, told.node, extra=fields)
        else:
            log.debug("pod %s: %s: %s", told.pod, told.result, told.message, extra=fields)

    def _epoch(self) -> int | None:
        return self._fence.epoch(time.clock_gettime_ns(time.CLOCK_BOOTTIME))

    def _tick(self) -> None:
        self._belief.tick(time.clock_gettime_ns(time.CLOCK_BOOTTIME))

    def _fail(self, error: BaseException) -> None:
        """A bug, or a store that cannot be followed: the process ends with the story logged, and the replica replaces it."""
        log.critical("the scheduler's loop failed", exc_info=error)
        logging.shutdown()
        os._exit(1)


def remote_scheduler(scheduler: type) -> Any:
    """Ray's actor class of a SchedulerActor. Its actors end with their creator, or by pid. They run on the creator's own host."""
    import ray

    # Those of the groups have threads of their own, as they wait for each other.
    remote: Any = ray.remote(concurrency_groups={QUESTIONS: QUESTIONS_AT_ONCE, BINDINGS: BINDINGS_AT_ONCE})(scheduler)
    # Threads for methods that wait: `alive`, `wait_until_synced`, `fenced_writes`, `drained`, and some for the quick ones.
    return remote.options(num_cpus=0, max_restarts=0, max_concurrency=9, scheduling_strategy=on_this_host())


def create_scheduler_actor(config: SchedulerActorConfig, queue_actor: Any, workers: Mapping[str, Any]) -> Any:
    """A handle."""
    return remote_scheduler(SchedulerActor).remote(config, queue_actor, dict(workers))


def _nothing() -> None:
    pass
