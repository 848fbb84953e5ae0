"""How fast large objects may come, learnt from how soon small pods are tried. Pure: times come in as arguments.

A large object costs etcd little more than a small one, so `WriteLimit` lets many in. But all replicas' APIs and schedulers
read each of its versions, and an attempt for it may take as long as for a hundred others. Some hundred a second fill a host, and
then a small pod waits for ten seconds until it is its turn.

So what objects have beyond LARGE_BYTES comes at a rate that falls by a part as soon as small pods wait for longer than
LATE_SECONDS from their creation to the first attempt, whatever is in their way, and that grows by a part while it is used up and
nobody is late. Small objects are not concerned, nor is anybody while no small pod is created: who submits large ones alone gets
what the cluster can take. Each replica does so for itself; what it measures is the cluster's.

A call goes in at once while BURST_BYTES are not used up, else waits its turn; the next ones wait behind it.

Cost: a microsecond a call; for a batch a walk over its objects' lengths.
"""

from __future__ import annotations

import math
from typing import Final

from rayched.api.wire import message_fields
from rayched.v1.services_pb2 import SubmitManyRequest

LARGE_BYTES: Final = 2_048
"""What an object may have without being held up. Pods without long lists in them have less."""
RATE_FIRST: Final = float(512 << 10)
"""Bytes a second: half of what two cores can follow with three replicas."""
RATE_MIN: Final = float(128 << 10)
REQUEST_BYTES_MAX: Final = 1 << 20
"""What is larger is no batch that could ever be taken, and is refused as such."""
BURST_BYTES: Final = float(REQUEST_BYTES_MAX)
LATE_SECONDS: Final = 0.25
WAIT_SECONDS_MAX: Final = 2.5
"""Below what clients give an attempt, so that they get an answer."""
STEP_SECONDS: Final = 0.5
"""Between two changes of the rate, so that each shows first what it does."""
_GROWTH: Final = 1.1
_FALL: Final = 0.7
OBJECTS_FIELD: Final = SubmitManyRequest.DESCRIPTOR.fields_by_name["objects"].number


class LargeObjectPace:
    """The rate of one replica. Owned by one thread. Times in seconds."""

    def __init__(self) -> None:
        self.rate = RATE_FIRST
        """Bytes a second."""
        self._credit = BURST_BYTES
        """Below 0 where calls wait."""
        self._counted_at = self._changed_at = self._late_at = -math.inf

    def turn(self, size: int, now: float) -> float:
        """When a call with so many bytes beyond LARGE_BYTES may go in, in seconds from now. One that would wait for more than
        WAIT_SECONDS_MAX has no turn, and is to come again when it would wait for less."""
        self._credit = min(BURST_BYTES, self._credit + self.rate * (now - self._counted_at))
        self._counted_at = now
        wait = max(0.0, -self._credit) / self.rate
        if wait and now >= max(self._changed_at, self._late_at) + STEP_SECONDS:
            self._change(_GROWTH, now)
        if wait <= WAIT_SECONDS_MAX:
            self._credit -= size
        return wait

    def tried(self, seconds: float, now: float) -> None:
        """A small pod had its first attempt so long after its creation."""
        if seconds > LATE_SECONDS:
            self._late_at = now
            if now >= self._changed_at + STEP_SECONDS:
                self._change(_FALL, now)

    def _change(self, factor: float, now: float) -> None:
        self.rate = max(RATE_MIN, self.rate * factor)
        self._changed_at = now


def large_part(call: str, request: bytes) -> int:
    """How many bytes the objects of a request have beyond LARGE_BYTES each."""
    if not LARGE_BYTES < len(request) <= REQUEST_BYTES_MAX:
        return 0
    objects = message_fields(request, OBJECTS_FIELD) if call == "Submission.SubmitMany" else None
    return sum(max(0, len(one) - LARGE_BYTES) for one in ([request] if objects is None else objects))
