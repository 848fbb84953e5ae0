"""The epochs in the order of their writes, and whether they rise as they shall: S5.

The counter of transitions grows by one whenever somebody acquires; it stays as it is when the holder gives the epoch back, and
when the same holder, which has not given it back, takes up its own lease again. The revision of an epoch rises by itself.
"""

from __future__ import annotations

import json

from rayched.audit.findings import Findings


class EpochTerms:
    """Told of each write of the epoch key."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.epoch = 0
        """In force, 0 before the first."""
        self.acquired: list[tuple[int, float]] = []
        """Revision and time of each epoch that somebody acquired."""
        self.released: list[tuple[int, float]] = []
        """The same of each that was given back."""
        self._transitions: int | None = None
        self._holder = ""

    def written(self, value: bytes | None, revision: int, seconds: float) -> None:
        """None: the key was deleted."""
        if value is None:
            self._findings.add("epochs_not_rising", f"revision {revision}: the epoch key was deleted")
            return
        written = json.loads(value)
        holder, transitions = str(written["holder"]), int(written["transitions"])
        if self._transitions is not None:
            allowed = {self._transitions + 1} if holder else {self._transitions}
            if holder and holder == self._holder:
                allowed.add(self._transitions)
            if transitions not in allowed:
                words = f"revision {revision}: transitions went from {self._transitions} to {transitions} with holder {holder!r}"
                self._findings.add("epochs_not_rising", words)
        (self.acquired if holder else self.released).append((revision, seconds))
        self._transitions, self._holder, self.epoch = transitions, holder, revision
