"""The SchedulerActor's side of the exchange: the log that grows, the session, and the pods in its hand.

Rules:

* One call at a time. It is made when there is something to tell, or pods are wanted and the queue may have some. The next one is
  under way while this hand is being decided.
* That attempts have ended, and that pods got their nodes while no pod waits for such news, changes nothing that the queue hands
  out: it waits for the next call, at most GATHER_SECONDS. So pods that come one by one take a call each, not two or three.
* Until the whole log has crossed no pod is asked for: the first to be tried might be in the rest. But where the rest is of the
  kind that comes in a burst, new pods of one priority and attempts that ended well, it counts as having come after the call, and
  the call is short: the queue takes in the next part while this hand is being decided.
* While the queue is behind with what has crossed nothing more is told to it: the next call lets it go on.
* Pods in the hand whose attempt has not begun go back when a pod of higher priority arrives.
* A hand is about two batches: more would only be given back, less would leave the scheduler waiting for the exchange.

No I/O. Owner: the SchedulerCore. Cost: about 4 µs a pod that comes, is handed out and ends.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from rayched.core.exchange.audit_sample import RollCall
from rayched.core.exchange.messages import (
    CALL_BYTES_MAX,
    ENTRIES_MAX,
    PODS_MAX,
    TEMPLATES_BYTES_MAX,
    TEMPLATES_MAX,
    Activated,
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
    PutOff,
    TakenUp,
)
from rayched.core.exchange.queue_events import Told
from rayched.framework.cluster_event import ClusterEvent
from rayched.scheduler.attempt import AttemptFailure
from rayched.snapshot.templates import PodTemplate

ASSIGNED_MAX: Final = 64
"""Pods in one entry of pods that got their nodes."""
HAND_MIN: Final = 64
"""Pods wanted in the hand however slow decisions are."""
ENTRIES_IN_A_BURST: Final = 512
"""Entries of a call while pods may be asked for before the rest has crossed: nothing more is decided until it is answered."""
ENTRIES_AT_FIRST: Final = 128
"""The same while few pods are in the hand: whoever has nothing to decide waits for the answer."""
GATHER_SECONDS: Final = 0.02
"""What changes nothing for any pod waits so long for a call that is made anyway."""
TIME_STEP_SECONDS: Final = 1e-6
"""Between pods that came at one moment: the queue orders pods of equal priority by their times."""
_NO_HURRY: Final = frozenset((AttemptsEnded, AssignedPods, PutOff, TakenUp))
"""Entries that change nothing that the queue hands out while no pod waits for such news."""
_MEASURED_MIN: Final = 16
"""Fewer pods say little about the speed."""


class QueueLink:
    """One session with the queue."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.end = 0
        """Position of the last entry of the log."""
        self.counts: Mapping[str, int] = {}
        """Pods in each place of the queue, as of the last answer."""
        self._bindings_awaited = False
        """A waiting pod may be woken by pods that get their nodes, as of the last answer."""
        self._log: deque[Told] = deque()
        self._crossed: OrderedDict[int, int] = OrderedDict()
        """Templates that the queue knows, by number, and how many bytes each consists of."""
        self._crossed_bytes = 0
        self._hand: deque[tuple[str, int]] = deque()
        self._lowest = 0
        """No pod in the hand has a lower priority."""
        self._highest_uncrossed: int | None = None
        """The highest priority of the pods that the queue has not heard of yet."""
        self._lowest_uncrossed: int | None = None
        """The lowest one of these."""
        self._unusual = 0
        """Position of the last entry that is more than a new pod, pods that ended, or pods that got their nodes."""
        self._in_flight: set[str] = set()
        """Pods that the queue handed out and whose outcome it waits for."""
        self._queued: set[str] = set()
        """Pods that the queue was told of, in flight or not, and that have not ended."""
        self._going: set[str] = set()
        """Pods of which the queue has yet to hear that they are gone: it may hand them out until then."""
        self._ended: list[str] | None = None
        """Of the entry that takes further pods that ended; they may stand before events, which are nothing to them any more."""
        self._assigned: tuple[AssignedPods, dict[PodTemplate, None]] | None = None
        """The entry that takes further pods that got their nodes, and its templates: the last but for one of pods that ended."""
        self._is_urgent = False
        """Something that has not crossed is more than what ordinary attempts leave behind."""
        self._told_since: float | None = None
        """When it was first seen that something has not crossed."""
        self._calling = False
        self._behind = False
        """The queue has not applied all that has crossed."""
        self._may_have_more = True
        self._next_due: float | None = None
        self._hand_wanted = HAND_MIN

    # ----------------------------------------------------------------------------------------------------------- log

    @property
    def backlog(self) -> int:
        """Entries that have not crossed."""
        return len(self._log)

    def cycle_begins(self) -> int:
        """The position of the last entry. What is told from now on stands behind it: the cycle does not see it."""
        self._assigned = None
        return self.end

    def assigned(self, event: ClusterEvent, template: PodTemplate, node_name: str) -> None:
        """A pod got its node, which is this event."""
        if self._assigned is None or len(self._assigned[0].templates) >= ASSIGNED_MAX:
            entry, templates = AssignedPods(event, [], []), dict[PodTemplate, None]()
            self.tell(entry, templates)
            self._assigned = entry, templates
        entry, templates = self._assigned
        entry.templates.append(template.id)
        entry.node_names.append(node_name)
        templates[template] = None

    def is_known(self, uid: str) -> bool:
        """The queue was told of the pod, and not yet that it ended."""
        return uid in self._queued

    def concerns(self, uid: str) -> bool:
        """The queue was told of the pod and not yet that it ended, or waits for its outcome."""
        return uid in self._queued or uid in self._in_flight

    def is_handed_out(self, uid: str) -> bool:
        """The queue waits for its outcome."""
        return uid in self._in_flight

    def tell(self, entry: LogEntry, templates: Collection[PodTemplate] = ()) -> None:
        """Append to the log. That a pod is gone is left out where the queue does not know it, or not any more."""
        kind = type(entry)
        if kind is PendingPodGone and isinstance(entry, PendingPodGone):
            if entry.uid not in self._queued:
                return
            self._queued.remove(entry.uid)
            self._going.add(entry.uid)
        self._log.append((entry, templates))
        self.end += 1
        if kind not in _NO_HURRY:
            self._is_urgent = True
            if not isinstance(entry, PendingPodSeen) or not entry.is_new:
                self._unusual = self.end
        if kind is not ClusterChange and kind is not AssignedPods:
            self._ended = None
        if kind is not AttemptsEnded:
            self._assigned = None
        if isinstance(entry, PendingPodSeen):
            self._queued.add(entry.uid)
            priority = entry.priority
            if self._highest_uncrossed is None or priority > self._highest_uncrossed:
                self._highest_uncrossed = priority
            if self._lowest_uncrossed is None or priority < self._lowest_uncrossed:
                self._lowest_uncrossed = priority
            if self._hand and priority > self._lowest:
                self._give_back_below(priority)

    def ended(self, uid: str) -> bool:
        """The pod has its node, or is not to be tried any more. False: this session's queue does not wait for its outcome."""
        if not self._land(uid):
            return False
        self._queued.discard(uid)
        if self._ended is None:
            ended: list[str] = []
            self.tell(AttemptsEnded(ended))
            self._ended = ended
        self._ended.append(uid)
        return True

    def failed(self, uid: str, began: int, failure: AttemptFailure) -> bool:
        """The pod's attempt failed; its cycle began at this position. False as in `ended`."""
        return self._land(uid) and self._told(
            AttemptFailed(uid, began, failure.unschedulable_plugins, failure.pending_plugins, failure.nominated_node_name)
        )

    def give_back(self, uid: str) -> bool:
        """The pod's attempt lost a race: it counts as not tried. False as in `ended`."""
        return self._land(uid) and self._told(GivenBack((uid,)))

    def put_off(self, uid: str) -> None:
        """The pod's cycle does not begin yet, so that the queue keeps no events for it."""
        self.tell(PutOff(uid))

    def take_up(self, uid: str) -> None:
        """Its cycle begins."""
        self.tell(TakenUp(uid))

    def activate(self, names: tuple[str, ...]) -> None:
        self.tell(Activated(names))

    def tell_all(self, told: Iterable[Told]) -> None:
        for entry, templates in told:
            self.tell(entry, templates)

    def _land(self, uid: str) -> bool:
        if uid not in self._in_flight:
            return False
        self._in_flight.remove(uid)
        return True

    def _told(self, entry: LogEntry) -> bool:
        self.tell(entry)
        return True

    # ---------------------------------------------------------------------------------------------------------- hand

    def __len__(self) -> int:
        """Pods in the hand."""
        return len(self._hand)

    @property
    def may_have_more(self) -> bool:
        """The queue could have handed out more pods than it was asked for, as of the last answer."""
        return self._may_have_more

    def take(self) -> str | None:
        """The next pod to try."""
        return self._hand.popleft()[0] if self._hand else None

    def coming(self, pods: int) -> list[str]:
        """The next pods to try, at most so many, which stay in the hand."""
        return [uid for uid, _ in itertools.islice(self._hand, pods)]

    def taken(self, pods: int, seconds: float, batch_seconds: float) -> None:
        """So many pods were decided, or stepped aside, in so long: the hand is to hold two batches of that speed."""
        if pods >= _MEASURED_MIN:
            in_a_batch = PODS_MAX if seconds <= 0 else int(pods * batch_seconds / seconds)
            self._hand_wanted = max(HAND_MIN, min(PODS_MAX, 2 * in_a_batch))

    def _give_back_below(self, priority: int) -> None:
        back = [uid for uid, its_priority in self._hand if its_priority < priority]
        self._hand = deque(kept for kept in self._hand if kept[1] >= priority)
        self._lowest = min((kept[1] for kept in self._hand), default=priority)
        if back:
            self._in_flight.difference_update(back)
            self.tell(GivenBack(tuple(back)))

    # ---------------------------------------------------------------------------------------------------------- call

    @property
    def is_calling(self) -> bool:
        return self._calling

    def next_due(self) -> float | None:
        """When to call without any other reason; None while nothing falls due, or a call is under way."""
        dues = (self._next_due, None if self._told_since is None else self._told_since + GATHER_SECONDS)
        return None if self._calling else min((due for due in dues if due is not None), default=None)

    @property
    def has_full_call(self) -> bool:
        """The queue has nothing to do, and as much is to be told as a call takes while pods come in a burst."""
        return not self._calling and len(self._log) >= self._short_call

    @property
    def _short_call(self) -> int:
        """As many entries as the queue takes in while the hand is being decided."""
        return min(ENTRIES_IN_A_BURST, max(ENTRIES_AT_FIRST, 2 * len(self._hand)))

    @property
    def _entries_max(self) -> int:
        """Of a call in a burst: a short one where pods can be asked for behind it."""
        short = self._short_call
        return short if self._unusual <= self.end - len(self._log) + short else ENTRIES_IN_A_BURST

    def request(self, now: float, roll_call: RollCall) -> ExchangeRequest | None:
        """The call to make now, if any is worth making."""
        if self._calling:
            return None
        if self._behind:
            self._calling = True
            want = 0 if self._log else max(0, self._hand_wanted - len(self._hand))
            return ExchangeRequest(self.session, self.end - len(self._log) + 1, (), now, want)
        is_due = self._next_due is not None and self._next_due <= now
        want = max(0, self._hand_wanted - len(self._hand))
        if want and 4 * want < self._hand_wanted and not self._log:
            # The hand is nearly full: a call for so few pods is not worth it yet.
            want = 0
        worth_it = self._has_to_tell(now) or is_due or bool(want and self._may_have_more)
        if not worth_it and not roll_call.is_due(now):
            return None
        is_burst = self._lowest_uncrossed == self._highest_uncrossed
        entries, new = self._to_cross(self._entries_max if is_burst else ENTRIES_MAX)
        if self._unusual <= self.end - len(self._log):
            self._going.clear()
        if self._log and not (is_burst and self._unusual <= self.end - len(self._log)):
            want = 0
        roll, suggest = ((), 0) if self._log else roll_call.take(now, self._in_flight)
        if not worth_it and not entries and not roll and not any(self.counts.values()):
            return None
        forget: list[int] = []
        while len(self._crossed) > TEMPLATES_MAX or self._crossed_bytes > TEMPLATES_BYTES_MAX:
            number, size = self._crossed.popitem(last=False)
            self._crossed_bytes -= size
            forget.append(number)
        self._calling = True
        self._next_due = None
        first = self.end - len(self._log) - len(entries) + 1
        return ExchangeRequest(self.session, first, tuple(entries), now, want, new, tuple(forget), roll, suggest)

    def _has_to_tell(self, now: float) -> bool:
        if not self._log:
            return False
        if self._told_since is None:
            self._told_since = now
        return self._is_urgent or now >= self._told_since + GATHER_SECONDS or self._bindings_awaited

    def _to_cross(self, entries_max: int) -> tuple[list[LogEntry], dict[int, bytes]]:
        """The next entries, and the templates in them that have not crossed."""
        entries: list[LogEntry] = []
        new: dict[int, bytes] = {}
        new_bytes = 0
        while self._log and len(entries) < entries_max and new_bytes < CALL_BYTES_MAX:
            entry, templates = self._log.popleft()
            entries.append(entry)
            for template in templates:
                if template.id in self._crossed:
                    self._crossed.move_to_end(template.id)
                else:
                    size = self._crossed[template.id] = len(template.content)
                    self._crossed_bytes += size
                    new_bytes += size
                    new[template.id] = template.content
        self._ended = self._assigned = self._told_since = None
        if not self._log:
            self._highest_uncrossed = self._lowest_uncrossed = None
            self._is_urgent = False
        return entries, new

    def answered(self, answer: ExchangeAnswer, priorities: Mapping[str, int]) -> None:
        """Take the pods into the hand. `priorities` has those that are still worth trying."""
        self._calling = False
        self._behind = answer.behind > 0
        self._may_have_more = answer.more
        self._next_due = answer.next_due
        self.counts = answer.counts
        self._bindings_awaited = answer.awaits_bindings
        for uid in answer.uids:
            if uid in self._going and uid in self._queued:
                # It left and came back since the call, and is a new one to the queue, which hands it out once more.
                continue
            self._in_flight.add(uid)
            priority = None if uid in self._going else priorities.get(uid)
            if priority is None:
                self.ended(uid)
            else:
                self._lowest = min(self._lowest, priority) if self._hand else priority
                self._hand.append((uid, priority))
        if self._hand and self._highest_uncrossed is not None and self._highest_uncrossed > self._lowest:
            self._give_back_below(self._highest_uncrossed)
