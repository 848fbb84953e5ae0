"""How long ago something was written, by this observer's own clock: the times at which it saw which revision of the store.

Whatever has revision R was there when the observer first saw a revision of R or more. So its age is at least the time since
then, whichever machine wrote it and whatever its clock says; and an observer that looks every few seconds is wrong by no more
than that. What was there before the observer began counts from its beginning: an age is never too great.

Samples of the last minutes are a second apart, older ones ten; what is older than `span_seconds` counts as that old.

Pure: times are seconds of a clock that never goes back. Owner: one thread. Memory: some hundred pairs of numbers.
"""

from __future__ import annotations

import bisect
import math
from typing import Final

_FINE_SECONDS: Final = 1.0
_FINE_SPAN_SECONDS: Final = 120.0
_COARSE_SECONDS: Final = 10.0
_THIN_SECONDS: Final = 60.0
"""Between two times that what has become old is thinned."""
SPAN_SECONDS: Final = 7200.0


class RevisionClock:
    """`observed` whenever a revision is seen."""

    def __init__(self, span_seconds: float = SPAN_SECONDS) -> None:
        self._span_seconds = span_seconds
        self._revisions: list[int] = []
        self._times: list[float] = []
        self._thin_at = -math.inf

    @property
    def revision(self) -> int:
        """The newest seen."""
        return self._revisions[-1] if self._revisions else 0

    def observed(self, revision: int, now: float) -> None:
        """The store has come to this revision, or had by now. A lower one than before is another history: it begins anew."""
        revisions, times = self._revisions, self._times
        if revisions and revision < revisions[-1]:
            revisions.clear()
            times.clear()
        if revisions and revision == revisions[-1]:
            return
        if len(times) > 1 and now - times[-2] < _FINE_SECONDS:
            # The later time stands for both: an age may be too small by that, not too great.
            revisions[-1], times[-1] = revision, now
        else:
            revisions.append(revision)
            times.append(now)
        if now >= self._thin_at:
            self._thin(now)

    def since(self, revision: int, now: float) -> float:
        """The time at which something of this revision was there for certain; not after `now`."""
        place = bisect.bisect_left(self._revisions, revision)
        return self._times[place] if place < len(self._times) else now

    def revision_at(self, time: float) -> int:
        """The newest revision that was seen by then; 0: nothing was."""
        place = bisect.bisect_right(self._times, time)
        return self._revisions[place - 1] if place else 0

    def _thin(self, now: float) -> None:
        self._thin_at = now + _THIN_SECONDS
        kept: list[tuple[int, float]] = []
        for revision, time in zip(self._revisions, self._times, strict=True):
            if len(kept) > 1 and time < now - _FINE_SPAN_SECONDS and time - kept[-2][1] < _COARSE_SECONDS:
                kept[-1] = revision, time
            else:
                kept.append((revision, time))
        # The oldest that is left stands for all before it.
        old = bisect.bisect_left([time for _, time in kept], now - self._span_seconds)
        kept = kept[old:]
        self._revisions, self._times = [revision for revision, _ in kept], [time for _, time in kept]
