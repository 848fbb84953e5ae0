"""How much room etcd has left, judged from what its members say; and the gate that refuses writes before there is none. No I/O.

The quota limits the file. What is deleted or compacted becomes free within the file and is used again; the file itself shrinks by
defragmentation alone. So two shares count: what is in use, which compaction lowers, and the file, which only grows.

| state | when, of the quota | what happens |
|---|---|---|
| AMPLE | otherwise | history is kept for `KEPT_SECONDS` |
| FILLING | in use 50 %, or file 70 % with as much in use as free | history is kept for a minute |
| TIGHT | in use 80 %, or file 95 %, until 75 % and 94 % | creations and updates are refused; history: 5 s, from 88 % on 1 s |
| FULL | etcd's alarm NOSPACE is raised | etcd refuses every put; deletions go on |

The last fifth is left to what has to go on: bindings, renewals, reports of nodes, deletions. Events are given up before anything
else is refused, whoever writes them, as nothing decides by them: from 70 % in use on, or a file of 93 %.

Source: etcd 3.4 and 3.5, whose quota is compared with the size of the file.
"""

from __future__ import annotations

import enum
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rayched.store.calls import MemberStatus

KEPT_SECONDS: Final = 600.0
_RETRY_SECONDS: Final = 30.0
"""Somebody has to delete something first. Longer than clients wait by themselves: they learn of it at once."""
_WRITES_TO_COME: Final = 2
"""Of each object that was written lately."""
_LOOKS: Final = 20
"""They are lately: ten seconds of an etcd that fills."""
_RETRY_SOON_SECONDS: Final = 1.0
"""The next look comes within half of it."""
_KEPT_FILLING_SECONDS: Final = 60.0
_KEPT_TIGHT_SECONDS: Final = 5.0
_KEPT_NEARLY_FULL_SECONDS: Final = 1.0
_FILLING_SHARE: Final = 0.5
_TIGHT_SHARE, _TIGHT_UNTIL_SHARE = 0.80, 0.75
_NEARLY_FULL_SHARE: Final = 0.88
_EVENTS_SHARE: Final = 0.70
_FILE_EVENTS_SHARE: Final = 0.93
_FILE_FILLING_SHARE: Final = 0.7
_FILE_TIGHT_SHARE, _FILE_TIGHT_UNTIL_SHARE = 0.95, 0.94
_FREE_WORTH_SHARE: Final = 0.05
"""A defragmentation that gives back less than this is not worth its pause."""
_FILE_DEFRAGMENT_SHARE: Final = 0.90
"""Free pages that do not lie together are of no use to a large object: the file grows beside them, by 5 % between two looks."""
_DISARM_SHARE: Final = 0.95
NOSPACE: Final = "NOSPACE"


class SpaceState(enum.IntEnum):
    """See the module; a higher one is worse."""

    AMPLE = 0
    FILLING = 1
    TIGHT = 2
    FULL = 3


@dataclass(frozen=True, slots=True)
class Space:
    """Of the fullest member. `quota_bytes` 0: unknown, then only the alarm tells."""

    state: SpaceState
    file_bytes: int = 0
    in_use_bytes: int = 0
    quota_bytes: int = 0
    members: int = 1
    alarms: tuple[str, ...] = ()

    @property
    def kept_seconds(self) -> float:
        """For how long history is kept."""
        match self.state:
            case SpaceState.AMPLE:
                return KEPT_SECONDS
            case SpaceState.FILLING:
                return _KEPT_FILLING_SECONDS
            case SpaceState.TIGHT:
                is_nearly_full = self.in_use_bytes >= _NEARLY_FULL_SHARE * self.quota_bytes
                return _KEPT_NEARLY_FULL_SECONDS if is_nearly_full else _KEPT_TIGHT_SECONDS
            case SpaceState.FULL:
                return 0.0

    @property
    def wants_defragmentation(self) -> bool:
        """The file is what is in the way, and much of it is free. A full etcd knows that late: it counts as it writes."""
        if self.state is SpaceState.FULL:
            return True
        free = self.file_bytes - self.in_use_bytes
        near = bool(self.quota_bytes) and self.file_bytes >= _FILE_DEFRAGMENT_SHARE * self.quota_bytes
        return near and free >= _FREE_WORTH_SHARE * self.quota_bytes

    @property
    def may_disarm(self) -> bool:
        """The alarm is raised, and there is room again."""
        return NOSPACE in self.alarms and self.file_bytes < _DISARM_SHARE * self.quota_bytes

    @property
    def words(self) -> str:
        """The sizes, for people."""
        if not self.quota_bytes:
            return f"etcd's file has {_size(self.file_bytes)}, of them {_size(self.in_use_bytes)} in use; its quota is not known"
        in_use, file = 100 * self.in_use_bytes / self.quota_bytes, 100 * self.file_bytes / self.quota_bytes
        return f"{in_use:.0f} % of etcd's quota of {_size(self.quota_bytes)} are in use, its file takes {file:.0f} %"

    def problem(self) -> str | None:
        """What is wrong and what helps, in one line; None where nothing is."""
        steps = f"`{'`, `'.join(self.commands())}`"
        if self.state is SpaceState.FULL:
            told = f"etcd's space is used up and its alarm NOSPACE raised: {self.words}. Nobody can lead"
            return f"{told}; delete what is not needed, then {steps}"
        if self.state is SpaceState.TIGHT:
            helps = f"it wants {steps}" if self.wants_defragmentation else "delete what is not needed, or raise the quota"
            return f"etcd's space is nearly used up: {self.words}. Nothing new is taken; {helps}"
        return f"etcd has raised the alarm {', '.join(self.alarms)}: see etcd's documentation" if self.alarms else None

    def commands(self) -> tuple[str, ...]:
        """Of etcdctl, in order; the runbook in docs/operations.md has them too."""
        members = " --cluster" if self.members > 1 else ""
        disarm = ("etcdctl alarm disarm",) if NOSPACE in self.alarms else ()
        return ("etcdctl compact REVISION", f"etcdctl defrag{members}", *disarm)


AMPLE: Final = Space(SpaceState.AMPLE)


def judge(statuses: Sequence[MemberStatus], quota_bytes: int, before: SpaceState) -> Space:
    """The state from what the members that answered say. `before`: what they were in at the last look."""
    file = max(status.database_bytes for status in statuses)
    in_use = max(status.in_use_bytes for status in statuses)
    alarms = tuple(sorted({alarm for status in statuses for alarm in status.alarms}))
    return Space(_state(file, in_use, quota_bytes, alarms, before), file, in_use, quota_bytes, len(statuses), alarms)


def _state(file: int, in_use: int, quota: int, alarms: Sequence[str], before: SpaceState) -> SpaceState:
    if NOSPACE in alarms:
        return SpaceState.FULL
    if not quota:
        return SpaceState.AMPLE
    was_tight = before >= SpaceState.TIGHT
    if in_use >= (_TIGHT_UNTIL_SHARE if was_tight else _TIGHT_SHARE) * quota:
        return SpaceState.TIGHT
    if file >= (_FILE_TIGHT_UNTIL_SHARE if was_tight else _FILE_TIGHT_SHARE) * quota:
        return SpaceState.TIGHT
    if in_use >= _FILLING_SHARE * quota or (file >= _FILE_FILLING_SHARE * quota and 2 * in_use >= file):
        return SpaceState.FILLING
    return SpaceState.AMPLE


class SpaceRefusal(NamedTuple):
    """Why nothing new is taken, and when to ask again."""

    why: str
    retry_seconds: float


class SpaceGate:
    """What the last looks found, for all who ask; from any thread.

    What is taken costs more than itself: a pod is written again when it is bound, and when its node reports it, and none of that
    is refused. So as much again is expected twice, of what has become in use lately, whoever wrote it, and of what this replica
    has taken since the last look.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._space = AMPLE
        self._written = 0
        self._lately: deque[int] = deque(maxlen=_LOOKS)
        """In use at the last looks."""

    @property
    def space(self) -> Space:
        return self._space

    def found(self, space: Space) -> None:
        with self._lock:
            self._space, self._written = space, 0
            self._lately.append(space.in_use_bytes)

    def wrote(self, size: int) -> None:
        """So many bytes of objects are on their way to etcd."""
        with self._lock:
            self._written += size

    def refusal(self) -> SpaceRefusal | None:
        """None: what is new is taken."""
        space = self._space
        if space.state >= SpaceState.TIGHT:
            return SpaceRefusal(space.problem() or space.words, _RETRY_SECONDS)
        if space.quota_bytes and self._expected() >= _TIGHT_SHARE * space.quota_bytes:
            why = f"etcd's space is nearly used up: {space.words}, and more is on the way. Nothing new is taken for a moment"
            return SpaceRefusal(why, _RETRY_SOON_SECONDS)
        return None

    def events_refusal(self) -> SpaceRefusal | None:
        """The same of Events, which are given up before anything else is refused."""
        space, refusal = self._space, self.refusal()
        if refusal is not None or not space.quota_bytes:
            return refusal
        if self._expected() < _EVENTS_SHARE * space.quota_bytes and space.file_bytes < _FILE_EVENTS_SHARE * space.quota_bytes:
            return None
        return SpaceRefusal(f"etcd's space is kept for what matters more: {space.words}. No Events are taken", _RETRY_SECONDS)

    def _expected(self) -> int:
        """Bytes in use when all is written that is on its way."""
        with self._lock:
            in_use = self._space.in_use_bytes
            grown = in_use - min(self._lately, default=in_use)
            return in_use + _WRITES_TO_COME * grown + (1 + _WRITES_TO_COME) * self._written


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"
