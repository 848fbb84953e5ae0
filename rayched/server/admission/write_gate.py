"""The gate that all calls that write pass: as many at once as etcd bears, a short line before it, the rest refused with a delay.

A call weighs one and one more for each 256 bytes of its request; how much may be within is `WriteLimit`'s to say. Who finds no
place waits for one in a short line. Agents of nodes have the limit for themselves: what users have within takes no place of
theirs, while what agents have within takes users' places, so a large submission delays no sign of life. Events that agents tell
of come last: nothing decides by them, so they take nobody's place and wait for everybody. Who finds the line full, or waits too
long, is refused with RESOURCE_EXHAUSTED and the time after which to try again, before its request is even
parsed. Nothing of it is done. Renewals and bindings do not pass here: they are what room is kept for.

Before that, users' large objects wait for their turn (`LargeObjectPace`), and take no place meanwhile.

Owner: the event loop. Cost: some microseconds a call.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rayched.server.admission.large_objects import WAIT_SECONDS_MAX, LargeObjectPace
from rayched.server.admission.write_limit import WriteLimit
from rayched.server.errors import overloaded


class Precedence(Enum):
    """Whose calls go first; in that order."""

    NODES = "nodes"
    """Agents: signs of life and statuses."""
    USERS = "users"
    EVENTS = "events"
    """Agents: what has happened to nodes and pods."""


CALLS: Final[Mapping[str, Precedence]] = {
    "Nodes.Register": Precedence.NODES,
    "Nodes.Heartbeat": Precedence.NODES,
    "Nodes.UpdateNodeStatus": Precedence.NODES,
    "Nodes.UpdatePodStatus": Precedence.NODES,
    "Nodes.ReportEvents": Precedence.EVENTS,
    "Submission.Submit": Precedence.USERS,
    "Submission.SubmitMany": Precedence.USERS,
    "Submission.Apply": Precedence.USERS,
    "Submission.Delete": Precedence.USERS,
    "Eviction.Evict": Precedence.USERS,
    "Admin.Cordon": Precedence.USERS,
    "Admin.Taint": Precedence.USERS,
    "Admin.Label": Precedence.USERS,
    "Admin.Scale": Precedence.USERS,
    "Access.Grant": Precedence.USERS,
    "Access.RevokeGrant": Precedence.USERS,
    "Access.IssueToken": Precedence.USERS,
    "Access.RevokeToken": Precedence.USERS,
    "Access.SignCertificate": Precedence.USERS,
    "Access.RevokeCertificate": Precedence.USERS,
    "Access.Readmit": Precedence.USERS,
}
"""The calls that write."""

_BYTES_A_UNIT: Final = 256
_LINE_LIMITS: Final = {Precedence.NODES: 16.0, Precedence.USERS: 2.0, Precedence.EVENTS: 2.0}
"""How much may wait, in limits."""
_WAIT_SECONDS_MAX: Final = {Precedence.NODES: 2.5, Precedence.USERS: 1.0, Precedence.EVENTS: 1.0}
"""Below what clients give an attempt, so that they get an answer."""
_LARGE: Final = "large"
LINES: Final = (*(precedence.value for precedence in Precedence), _LARGE)
RETRY_SECONDS: Final = 0.5
"""After which a refused call may be made again; clients spread, and wait longer each time."""


@dataclass(slots=True, eq=False)
class _Waiting:
    weight: int
    admitted: asyncio.Future[None]


class WriteGate:
    """The gate of one replica."""

    def __init__(self, limit: WriteLimit | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit or WriteLimit()
        self.large = LargeObjectPace()
        self._clock = clock
        self._lines: dict[Precedence, deque[_Waiting]] = {precedence: deque() for precedence in Precedence}
        self._within = dict.fromkeys(Precedence, 0)
        self.refused: Counter[str] = Counter()
        """Calls, by the line that they stood in: a precedence, or that of large objects."""

    @property
    def within(self) -> int:
        """The weight of what is under way."""
        return sum(self._within.values())

    @property
    def waiting(self) -> int:
        """The weight of what waits."""
        return sum(map(self._weight_waiting, Precedence))

    @asynccontextmanager
    async def passed(self, call: str, size: int, large: int = 0) -> AsyncIterator[None]:
        """For as long as a call of CALLS is under way; `size` is that of its request, in bytes, and `large` what of it its
        objects have beyond LARGE_BYTES each. Raises ApiFailure."""
        precedence, weight = CALLS[call], 1 + size // _BYTES_A_UNIT
        if large and precedence is Precedence.USERS:
            await self._large_turn(large)
        await self._enter(precedence, weight)
        try:
            yield
        finally:
            self._within[precedence] -= weight
            self._admit()

    def answered(self, sent: float) -> None:
        """etcd has answered a write of this replica that was sent then."""
        self.limit.heard(sent, self._clock(), used_up=any(self._lines.values()))
        self._admit()

    def unanswered(self, sent: float) -> None:
        """It has not, in time."""
        self.limit.unanswered(sent, self._clock())

    async def _large_turn(self, size: int) -> None:
        wait = self.large.turn(size, self._clock())
        if wait > WAIT_SECONDS_MAX:
            self.refused[_LARGE] += 1
            raise overloaded(
                "large objects come faster than the cluster can take them", max(RETRY_SECONDS, wait - WAIT_SECONDS_MAX)
            )
        if wait:
            await asyncio.sleep(wait)

    async def _enter(self, precedence: Precedence, weight: int) -> None:
        line = self._lines[precedence]
        if self._has_room(precedence, weight) and not any(self._lines[before] for before in _up_to(precedence)):
            self._within[precedence] += weight
            return
        if line and self._weight_waiting(precedence) + self._at_most(weight) > self.limit.weight * _LINE_LIMITS[precedence]:
            raise self._refusal(precedence)
        waiting = _Waiting(weight, asyncio.get_running_loop().create_future())
        line.append(waiting)
        try:
            async with asyncio.timeout(_WAIT_SECONDS_MAX[precedence]):
                await waiting.admitted
        except BaseException as error:
            if waiting in line:
                line.remove(waiting)
            elif not waiting.admitted.cancelled():
                # It was let in just when it gave up.
                self._within[precedence] -= weight
            self._admit()
            if isinstance(error, TimeoutError):
                raise self._refusal(precedence) from None
            raise

    def _admit(self) -> None:
        """Those who have a place by now, in order; one for whom there is none yet is not overtaken."""
        for precedence, line in self._lines.items():
            while line:
                if not self._has_room(precedence, line[0].weight):
                    return
                first = line.popleft()
                # One that has given up just now does not know it yet.
                if not first.admitted.done():
                    self._within[precedence] += first.weight
                    first.admitted.set_result(None)

    def _has_room(self, precedence: Precedence, weight: int) -> bool:
        within = sum(self._within[before] for before in _up_to(precedence))
        # What weighs more than the limit goes alone.
        return not within or within + weight <= self.limit.weight

    def _weight_waiting(self, precedence: Precedence) -> int:
        return sum(self._at_most(one.weight) for one in self._lines[precedence])

    def _at_most(self, weight: int) -> int:
        """One large request does not fill the line."""
        return min(weight, int(self.limit.weight))

    def _refusal(self, precedence: Precedence) -> Exception:
        self.refused[precedence.value] += 1
        return overloaded("too many writes are under way", RETRY_SECONDS)


def _up_to(precedence: Precedence) -> tuple[Precedence, ...]:
    """Whose calls are in the way of this one's."""
    everybody = tuple(Precedence)
    return everybody[: everybody.index(precedence) + 1]
