"""Which revision etcd may forget everything before, from moments that lie in etcd itself.

A moment is a revision and when it was current. The newest that is old enough is compacted to. They are kept in etcd, so history
is compacted however often replicas are restarted. Their times are wall clocks': a clock that is wrong keeps more or less history,
and loses nothing but that.

Pure; times are seconds of the wall clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from rayched.store.space import KEPT_SECONDS
from rayched.v1.storage_pb2 import CompactionRecord

MOMENT_SECONDS: Final = 300.0
"""Between two moments: history is kept for `KEPT_SECONDS`, and up to so much more."""
_MOMENTS_MAX: Final = 8
_FUTURE_SECONDS: Final = 60.0
"""A moment that is further ahead than this is of a clock that was wrong."""


class Moment(NamedTuple):
    """`revision` was etcd's newest at this time."""

    revision: int
    at: float


def moments_in(value: bytes) -> list[Moment]:
    """As they lie in etcd; none where somebody else wrote there."""
    try:
        found = CompactionRecord.FromString(value).moments
    except DecodeError:
        return []
    return [Moment(moment.revision, moment.at_ms / 1000) for moment in found]


def value_of(moments: Sequence[Moment]) -> bytes:
    record = CompactionRecord()
    for moment in moments:
        record.moments.add(revision=moment.revision, at_ms=int(moment.at * 1000))
    return record.SerializeToString()


def with_moment(moments: Sequence[Moment], revision: int, now: float) -> list[Moment] | None:
    """These and the present one; None while the last is recent. What cannot be true of this etcd now is dropped."""
    possible = [moment for moment in moments if moment.revision <= revision and moment.at <= now + _FUTURE_SECONDS]
    if possible and now - possible[-1].at < MOMENT_SECONDS:
        return None
    return [*possible, Moment(revision, now)][-_MOMENTS_MAX:]


def compactable(moments: Sequence[Moment], revision: int, now: float) -> int:
    """The revision that may be compacted to; 0: none yet. `revision` is etcd's newest."""
    old = [moment.revision for moment in moments if moment.revision <= revision and now - moment.at >= KEPT_SECONDS]
    return max(old, default=0)
