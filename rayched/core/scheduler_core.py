"""The SchedulerActor without its shell: watch, cycles, binding writes and the exchange with the queue, as one state without I/O.

Inputs: deliveries of the watch, answers of transactions, answers of exchanges, the belief and the clocks (read through `Ports`).
Outputs: what `turn` returns: transactions to send, an exchange to make, and when to turn again.

The carrier takes inputs as they come, turns, carries out what the turn returned, and then lets it `decide` one batch, so that
writes and the next exchange are under way while the batch is decided; and so on, until there is nothing left to decide.

* Belief and cache tell whether this scheduler leads (`Term`); they are asked before each batch and before anything is sent. At
  the start of a term the queue is rebuilt from the cache under a new session; nothing is listed at that moment. At its end
  nothing more is decided or sent, what was not sent is rolled back, and what is under way is awaited (`drained`).
* A batch is what is in the hand, at most BATCH_SECONDS of work, and one pod of those that take long (`costly_pods`).
* What has to be sent again goes first, then bindings, then statuses, then events.

Invariants:

* Every pod that the queue handed out gets exactly one outcome in its session (`attempt_outcomes`).
* A pod has at most one attempt, and at most one write under way. One bad pod ends its own attempt and nothing else.

Owner: one thread. Cost: beyond cycles and writes about 15 µs a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from rayched.core.attempt_outcomes import AttemptEnds
from rayched.core.awaited_attempt import AwaitedAttempt, prefetch
from rayched.core.cache.cache import PROGRESS_OBJECTS, Cache
from rayched.core.cache.change_handler import CacheNews
from rayched.core.cache.records import PodRecord, nominated_in
from rayched.core.costly_pods import DEATHS_MAX, HEAVY_SECONDS, SMALL_BYTES, CostlyPods, Trial
from rayched.core.exchange.audit_sample import RollCall
from rayched.core.exchange.fair_link import FairLink
from rayched.core.exchange.messages import ExchangeAnswer, ExchangeRequest
from rayched.core.exchange.queue_events import QueueFeed
from rayched.core.exchange.queue_session import TIME_STEP_SECONDS, QueueLink
from rayched.core.groups.pod_groups import GROUPS_UNSENT_MAX, PodGroups
from rayched.core.parts import CoreParts
from rayched.core.ports import Ports, Turn
from rayched.core.problems import Problems
from rayched.core.term import Step, Term
from rayched.core.write_sender import WriteSender
from rayched.core.writes import event_reasons as occurrences
from rayched.core.writes import pod_patches as pod_changes
from rayched.core.writes.bindings import AttemptEnd, Bindings, EndedAttempt
from rayched.core.writes.preemptions import Preemptions
from rayched.core.writes.statuses import StatusWrites
from rayched.core.writes.window import WriteWindow
from rayched.engine.shards import ShardEvaluator
from rayched.framework.profile import Profile
from rayched.framework.status import error
from rayched.queue.hints import HintTable
from rayched.scheduler.attempt import READY, AttemptFailure
from rayched.scheduler.scheduler import ATTEMPT_SECONDS, PodToSchedule, Scheduler
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.work_budget import AttemptAwaits, AttemptOverBudget
from rayched.store.event_writes import EventWrites
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Changed, Delivery, ListedAll

BATCH_SECONDS: Final = 0.005
"""Work of one batch; whatever waits meanwhile (the watch, answers, a tick) waits no longer than this."""
CLOCK_EVERY: Final = 4
"""Pods decided between two looks at the clock."""


class SchedulerCore:
    """The SchedulerActor's state: inputs go in, `turn` gives what is to be done, `decide` decides a batch."""

    RULE_ASSUMPTIONS_END_FIRST: ClassVar[bool] = True
    """Broken by tests alone."""

    def __init__(
        self,
        keys: Keys,
        profiles: Mapping[str, Profile],
        seed: int,
        incarnation: str,
        first_session: int,
        ports: Ports,
        snapshot: Snapshot | None = None,
        shards: Callable[[str], ShardEvaluator] | None = None,
        identity: str = "",
        fair_namespaces: bool = False,
    ) -> None:
        """`incarnation` is unique among all schedulers that ever wrote; `first_session` is higher than any session before.

        `identity`: of the replica, for Events of won elections; "": none. `fair_namespaces`: the queue is one with such turns.
        """
        self._identity, self._is_fair, self._ports = identity, fair_namespaces, ports
        self._synced_at: int | None = None
        """The revision of the first list."""
        self.snapshot = snapshot or Snapshot()
        self.snapshot.work.use(ports.work_clock or ports.clock, ports.progress)
        self.scheduler = Scheduler(self.snapshot, profiles, seed, shards, stopwatch=ports.clock)
        self.cache = Cache(keys, self.snapshot, self.scheduler.occupancy, ports.progress)
        self.term, self.window = Term(), WriteWindow()
        self.statuses = StatusWrites(self.cache, incarnation)
        self.events = EventWrites(keys, incarnation, has_room=ports.room_for_events)
        """Every part of the core emits its Events here."""
        self.bindings = Bindings(self.cache, self.scheduler, self.snapshot, self.statuses, incarnation)
        self.preemptions = Preemptions(self.cache, self.scheduler, self.statuses, incarnation)
        self._feed = QueueFeed(HintTable.of_profiles(profiles.values()), self.scheduler.knows)
        parts = CoreParts(
            ports,
            self.snapshot,
            self.cache,
            self.scheduler,
            self._feed,
            self.window,
            self.statuses,
            self.events,
            self.bindings,
            self.preemptions,
        )
        self._ends = AttemptEnds(parts)
        self.attempts = self._ends.attempts
        """Ended attempts by result: scheduled, unschedulable, error."""
        self.measures = self._ends.measures
        self.groups = PodGroups(parts, self._ends, incarnation)
        self._news = CacheNews(parts, self._ends, self.groups)
        self._sender = WriteSender(parts, self.term, self._ends, self.groups, keys.epoch)
        self._awaited: AwaitedAttempt | None = None
        self._costly, self._next_session = CostlyPods(), first_session
        self._roll_call = RollCall(self.cache, self._ends.is_to_be_tried, self.groups.knows)
        self._farewell: ExchangeRequest | None = None
        self.problems = Problems(self.cache, self.scheduler)

    # --------------------------------------------------------------------------------------------------------- inputs

    def watched(self, delivery: Delivery) -> None:
        """What the watch delivered."""
        match delivery:
            case ListedAll():
                self._news.absorb(self.cache.listed(delivery))
                if self._synced_at is None:
                    self._synced_at = self.cache.revision
            case Changed():
                self._news.absorb(self.cache.changed(delivery))
            case _:
                pass  # Broken and Resumed: nothing was missed, and nothing is known that was not known before.

    def transaction_answered(self, number: int, answer: Any) -> None:
        """The TxnResponse of a sent transaction, or the StoreError in its place."""
        self._sender.answered(number, answer)

    def exchange_answered(self, answer: ExchangeAnswer) -> None:
        """An answer of an older session is dropped."""
        link = self.link
        if link is None or answer.session != link.session:
            return
        link.answered(answer, self.groups.worth_trying(answer.uids))
        now = self._ports.clock()
        for uid in answer.gated:
            self.statuses.want(uid, pod_changes.GATED, now)
        self._roll_call.suggest(answer.suggested)
        self.problems.of_queue(answer.problems)
        for uid in answer.lost:
            record = self.cache.pod(uid)
            if record is not None and self._ends.is_to_be_tried(record):
                link.tell(*self._feed.pending_pod(record, now))

    def lease_granted(self, lease: int | None) -> None:
        """The lease that a turn wanted; None: there is none."""
        self.events.lease_granted(lease, self._ports.clock())

    def queue_lost(self) -> None:
        """The queue's state is gone, or a new queue is there: start anew from the cache, under a new session."""
        if self.link is not None:
            self._begin_session()

    # ----------------------------------------------------------------------------------------------------------- state

    @property
    def link(self) -> QueueLink | None:
        """The session with the queue, while leading."""
        return self._ends.link

    @property
    def drained(self) -> bool:
        """Not leading, and no write is under way."""
        return not self.term.leads and self.window.quiet

    def activate(self, names: tuple[str, ...]) -> None:
        """Pods to be tried at once."""
        if self.link is not None and names:
            self.link.activate(names)

    # ------------------------------------------------------------------------------------------------------------ turn

    def turn(self) -> Turn:
        """Follow the belief, end waits, write what can be written, and make the exchange that is due."""
        self._follow_belief()
        link = self.link
        if link is None:
            farewell, self._farewell = self._farewell, None
            return Turn(exchange=farewell)
        now = self._ports.clock()
        self._end_waits(now)
        self._ends.end_all(self.groups.others(self.bindings.resolved(), now))
        sends = self._sender.send(now)
        self._ends.tell_freed()
        lease_wanted = self.events.lease_wanted(now)
        return Turn(sends, link.request(now, self._roll_call), self._turn_at(link), lease_wanted)

    def decide(self) -> bool:
        """One batch of cycles. False: there was nothing to decide."""
        self._follow_belief()
        link, costly, awaited = self.link, self._costly, self._awaited
        # No pod that is decided makes room for more than one other.
        room = self.bindings.room if self.groups.n_unsent < GROUPS_UNSENT_MAX else 0
        has_work = awaited or len(costly) or self.groups.n_paused or (link is not None and len(link))
        if link is None or not has_work or not room or (awaited and not awaited.work.is_over):
            return False
        clock, decisions = self._ports.clock, self.scheduler.decisions
        decisions.begin(self.cache.revision)
        began, now_unix, count, taken = clock(), self._ports.wall_clock(), 0, 0
        if awaited is not None:
            self._awaited, count = None, int(awaited.turn is None)
            self._decide_pod(awaited.uid, self.cache.pod(awaited.uid), link, now_unix, awaited.turn)
        while count < room and self._awaited is None:
            uid = link.take()
            if uid is None:
                break
            taken += 1
            record = self.cache.pod(uid)
            if record is not None and self._steps_aside(record, link):
                continue
            self._decide_pod(uid, record, link, now_unix)
            count += 1
            if (not count % CLOCK_EVERY or self.snapshot.work.took >= BATCH_SECONDS) and clock() >= began + BATCH_SECONDS:
                break
        ended = clock()
        if count:
            costly.ordinary(ended, ended - began)
        link.taken(taken, ended - began, BATCH_SECONDS)
        turn = None
        if count < room and len(costly) and self._awaited is None:
            turn = costly.take(ended, in_hand=len(link) > 0, in_queue=link.may_have_more)
        if turn is not None:
            link.take_up(turn.uid)
            self._decide_pod(turn.uid, self.cache.pod(turn.uid), link, now_unix, turn)
        went_on = self._awaited is None and self.groups.n_paused > 0 and self.groups.go_on(in_hand=len(link), decided=count)
        ended = clock() if turn is not None or went_on else ended
        decisions.end(ended)
        self.measures.batch_ended(ended)
        self._ports.deciding("")
        return count > 0 or turn is not None or awaited is not None or went_on

    def idle(self) -> bool:
        """A piece of background work, while there is nothing to decide. False: there is none."""
        return self.link is not None and self._awaited is None and self.scheduler.count_rejections()

    def _turn_at(self, link: QueueLink) -> float | None:
        dues = (
            link.next_due(),
            self._costly.due() if self.bindings.room and self._awaited is None else None,
            self._awaited.work.until if self.bindings.room and self._awaited is not None else None,
            self.scheduler.waiting.next_deadline(),
            self.window.next_due(),
            self.statuses.next_due() if self.window.room else None,
            self.groups.next_due() if self.groups.is_used and self.window.room else None,
            self.events.next_due(self._sender.is_pressed) if self.window.room else None,
        )
        return min((due for due in dues if due is not None), default=None)

    # ------------------------------------------------------------------------------------------------------------ term

    def _follow_belief(self) -> None:
        match self.term.step(self._ports.belief(), self.cache.revision):
            case Step.STOP:
                self._ends.link = None
                # A session that nobody uses empties the queue: what it held is none of a standby's business.
                self._farewell = ExchangeRequest(self._next_session, 1, (), self._ports.clock(), 0)
                self._next_session += 1
                self.measures.end_term()
                self.bindings.stop()
                self.preemptions.stop()
                self.groups.stop()
                self.statuses.clear()
                # Another epoch may be there already.
                self._follow_belief()
            case Step.BEGIN:
                self.window.end_term()
                self.bindings.stop()
                self.bindings.forget_sent()
                self.preemptions.forget_sent()
                self.groups.end_epoch()
                self.statuses.clear()
                self.statuses.forget_sent()
                self.events.clear()
                self._tell_of_election()
                if self.RULE_ASSUMPTIONS_END_FIRST:
                    self.scheduler.void()
                self._take_nominations()
                self._begin_session()
                if not self.RULE_ASSUMPTIONS_END_FIRST:
                    self.scheduler.void()
            case Step.RESUME:
                self._take_nominations()
                self._begin_session()
            case Step.NOTHING:
                pass

    def _tell_of_election(self) -> None:
        # Who was made under an epoch that had begun already takes over from another process of the leader: nobody was elected.
        if self._identity and self._synced_at is not None and self._synced_at < self.term.epoch:
            self.events.emit(occurrences.became_leader(self._identity), self._ports.clock(), self._ports.wall_clock())

    def _take_nominations(self) -> None:
        """What the leaders before nominated, as far as the nodes are there."""
        pending = ((record.uid, record.template, nominated_in(record)) for record in self.cache.pending())
        self.scheduler.nominations.restart(pending)

    def _begin_session(self) -> None:
        """Begin a session: every pod that waits for a node goes to a new queue, oldest first."""
        self.bindings.forget_lost()
        self.preemptions.stop()
        self.scheduler.freed.clear()
        self._costly.clear()
        self._awaited = None
        clock, number = self._ports.clock, self._next_session
        link = self._ends.link = FairLink(number, clock) if self._is_fair else QueueLink(number)
        self._next_session += 1
        waiting = [record for record in self.cache.pending() if self._ends.is_to_be_tried(record)]
        self._roll_call.begin(clock())
        since = clock() - len(waiting) * TIME_STEP_SECONDS
        for place, record in enumerate(waiting):
            link.tell(*self._feed.pending_pod(record, since + place * TIME_STEP_SECONDS))
            if not place % PROGRESS_OBJECTS:
                self._ports.progress()
        self.groups.begin(self._ports.clock())

    # ---------------------------------------------------------------------------------------------------------- cycles

    def _steps_aside(self, record: PodRecord, link: QueueLink) -> bool:
        """Whether it is not the pod's turn yet."""
        if not (suspects := self.cache.suspects) and len(record.template.content) <= SMALL_BYTES:
            return False
        deaths = suspects.get(record.uid, 0)
        if deaths < DEATHS_MAX:
            aside = self._costly.steps_aside(record.uid, record.template, deaths, self._ports.clock() if deaths else 0.0)
            if aside:
                link.put_off(record.uid)
            return aside
        why = f"schedulers ended in {deaths} attempts for this pod; it is tried again when that is an hour ago"
        self._ends.failed(record.uid, link.cycle_begins(), AttemptFailure(error(why), why), self._ports.clock())
        return True

    def _decide_pod(
        self, uid: str, record: PodRecord | None, link: QueueLink, now_unix: float, turn: Trial | None = None
    ) -> None:
        """`turn`: of a pod that stepped aside."""
        if record is None or record.kept is None or not self._ends.is_to_be_tried(record):
            self.groups.decide(uid, record, link, now_unix)
            return
        now = self._ports.clock()
        self._ports.deciding(uid)
        self.measures.cycle_began.append(now)
        pod = PodToSchedule(uid, record.name, record.template, record.kept)
        began = link.cycle_begins()
        try:
            allowed, goes_on = (ATTEMPT_SECONDS, False) if turn is None else (turn.allowed, turn.goes_on)
            result = self.scheduler.schedule(pod, began, now, now_unix, allowed, goes_on=goes_on, may_await=True)
        except AttemptAwaits as awaits:
            self.measures.cycle_began.pop()
            self._awaited = AwaitedAttempt(uid, turn, awaits.work)
            prefetch(link, self.cache, self.scheduler)
            return
        except AttemptOverBudget:
            self._costly.was_aside(now, self._ports.clock())
            self._costly.goes_on()
            link.put_off(uid)
            return
        took = self.snapshot.work.took
        if turn is not None or took >= HEAVY_SECONDS:
            self._costly.took(record.template, took)
        if turn is not None:
            self._costly.was_aside(now, self._ports.clock())
        shadows = self.scheduler.shadows
        while shadows.unread:
            self.events.emit(occurrences.shadow_decision(shadows.unread.popleft()), now, now_unix)
        if isinstance(result, AttemptFailure):
            self.measures.failed(uid, record.template.scheduler_name, result, now, record.name)
            self._ends.failed(uid, began, result, now)
            return
        self.bindings.decided(result)
        if result.phase is READY:
            self.bindings.ready(uid)

    def _end_waits(self, now: float) -> None:
        for attempt, failure in self.scheduler.decided_waits(now):
            self.measures.waited(attempt, failure, now)
            if failure is None:
                self.bindings.ready(attempt.uid)
            else:
                self.bindings.cancel(attempt.uid)
                self._ends.end(EndedAttempt(attempt.uid, AttemptEnd.FAILED, attempt, failure))
