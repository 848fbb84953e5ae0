"""How long the scheduler waits for an answer of the queue's process, and why it waits no longer.

Ordinary exchanges take milliseconds, and long ones are answered in slices. One that goes on for SECONDS_MAX and computes all the
while, or that is stopped, has no end. On a busy machine a process may just have had no turn; so what it has computed decides, and
time alone only after SILENT_SECONDS_MAX.

No I/O but what the process is asked. Owner: the loop of the SchedulerActor.
"""

from __future__ import annotations

from typing import Final, Protocol

SECONDS_MAX: Final = 3.0
CPU_SECONDS_MAX: Final = 1.0
"""What one exchange may compute: several times what a slice may take."""
SILENT_SECONDS_MAX: Final = 15.0
LOOK_SECONDS_MAX: Final = 0.2
"""Between two looks more time is the looker's own, and counts as so much."""


class Process(Protocol):
    """What is asked of it: see `process_handle`."""

    def cpu_seconds(self) -> float: ...

    @property
    def is_stopped(self) -> bool: ...


class QueuePatience:
    """Of one exchange at a time. Times in seconds."""

    def __init__(self, process: Process | None, now: float) -> None:
        """None: not known yet. It is not examined before an exchange."""
        self._process = process
        self._waited: float | None = None
        """For the exchange under way."""
        self._computed = 0.0
        """When it began."""
        self._looked_at = now

    def began(self) -> None:
        """An exchange."""
        self._waited = 0.0
        self._computed = self._seconds() or 0.0

    def ended(self) -> None:
        """It was answered, or is given up."""
        self._waited = None

    def knows(self, process: Process | None) -> None:
        """The process has only now begun to live; what it was asked before could not be answered."""
        self._process = process
        if self._waited is not None:
            self.began()

    def why_ended(self, now: float) -> str:
        """Why the process is to be ended; "": it is not. Once it has said why it says no more."""
        looked, self._looked_at = self._looked_at, now
        if self._waited is None or self._process is None:
            return ""
        self._waited += min(now - looked, LOOK_SECONDS_MAX)
        if self._waited <= SECONDS_MAX:
            return ""
        seconds = self._seconds()
        if seconds is None:
            # Of one that has died the replica learns.
            return ""
        if seconds - self._computed > CPU_SECONDS_MAX:
            why = "computes"
        elif self._process.is_stopped:
            why = "is stopped"
        elif self._waited > SILENT_SECONDS_MAX:
            why = "gives no sign of life"
        else:
            return ""
        self._process = None
        return f"has not answered for {self._waited:.1f} s and {why}"

    def _seconds(self) -> float | None:
        if self._process is None:
            return None
        try:
            return self._process.cpu_seconds()
        except ProcessLookupError:
            return None
