"""Whether the work of a term has stopped, and whether the term may then be released.

What has not drained is not released: its holder might still write in good faith. Work that took longer than the grace, or
that did not stop cleanly, has forfeited the release of its term; followers then wait for the lease to run out.
"""

from __future__ import annotations


class Drain:
    """Owned by one Election. Times are CLOCK_BOOTTIME, nanoseconds."""

    __slots__ = ("done", "may_release", "overdue_ns", "since_ns")

    def __init__(self) -> None:
        self.done = True
        self.may_release = False
        self.overdue_ns: int | None = None
        """When the grace is over; None: it does not run."""
        self.since_ns = 0
        """When the work was last told to stop."""

    def begin(self, now_ns: int, grace_ns: int, may_release: bool) -> None:
        self.done, self.may_release = False, may_release
        self.since_ns, self.overdue_ns = now_ns, now_ns + grace_ns

    def end(self, clean: bool) -> None:
        self.done, self.overdue_ns = True, None
        self.may_release &= clean

    def become_overdue(self, now_ns: int) -> bool:
        """True once, when the grace is over."""
        if self.overdue_ns is None or now_ns < self.overdue_ns:
            return False
        self.overdue_ns, self.may_release = None, False
        return True
