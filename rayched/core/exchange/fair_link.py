"""A session with a queue in which namespaces have turns: it tells how long was worked for each.

A pod's time is from its taking out of the hand to the next one's, or to the end of the batch, so that whatever its attempt brings
about counts as well. What goes on later, an attempt that workers compute or a search in pieces, is nobody's. The hand is short:
who is in it has his turn already.

No I/O. Owner: the SchedulerCore. Cost: one look at the clock a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from rayched.core.exchange.audit_sample import RollCall
from rayched.core.exchange.messages import PODS_MAX, ExchangeAnswer, ExchangeRequest
from rayched.core.exchange.queue_session import QueueLink

FAIR_HAND_MIN: Final = 8
"""Pods wanted in the hand: of 10 ms each, the longest that a submitter's may take, less than a tenth of a second."""


class FairLink(QueueLink):
    """One session with such a queue."""

    def __init__(self, session: int, clock: Callable[[], float]) -> None:
        super().__init__(session)
        self._clock = clock
        self._hand_wanted = FAIR_HAND_MIN
        self._namespaces: dict[str, str] = {}
        """Of pods in flight, by uid."""
        self._for: tuple[str, float] | None = None
        """For whom the scheduler works, and since when."""
        self._spent: dict[str, float] = {}
        """Seconds that were not told yet."""

    def take(self) -> str | None:
        uid = super().take()
        self._works_for(uid)
        return uid

    def take_up(self, uid: str) -> None:
        super().take_up(uid)
        self._works_for(uid)

    def taken(self, pods: int, seconds: float, batch_seconds: float) -> None:
        """A hand of two batches, be they of few pods."""
        self._works_for(None)
        if pods:
            in_a_batch = PODS_MAX if seconds <= 0 else int(pods * batch_seconds / seconds)
            self._hand_wanted = max(FAIR_HAND_MIN, min(PODS_MAX, 2 * in_a_batch))

    def request(self, now: float, roll_call: RollCall) -> ExchangeRequest | None:
        self._works_for(None)
        request = super().request(now, roll_call)
        if request is None or not self._spent:
            return request
        spent, self._spent = tuple(self._spent.items()), {}
        return replace(request, spent=spent)

    def answered(self, answer: ExchangeAnswer, priorities: Mapping[str, int]) -> None:
        self._namespaces.update(zip(answer.uids, answer.namespaces, strict=True))
        super().answered(answer, priorities)
        if len(self._namespaces) > len(self._in_flight) + PODS_MAX:
            self._namespaces = {uid: name for uid, name in self._namespaces.items() if uid in self._in_flight}

    def _works_for(self, uid: str | None) -> None:
        """From now on; None: for nobody that is known."""
        now = self._clock()
        if self._for is not None:
            namespace, since = self._for
            self._spent[namespace] = self._spent.get(namespace, 0.0) + now - since
        namespace = "" if uid is None else self._namespaces.get(uid, "")
        self._for = (namespace, now) if namespace else None
