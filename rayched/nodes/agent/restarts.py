"""How long an ended container waits for its next start. Pure.

The first restart comes at once, the next after 10 s, and each doubles the wait up to five minutes; a container that ran for ten
minutes begins anew. `--crash-loop-max-period` caps all of it, the first wait too.

Source: kubelet's container back-off, Kubernetes 1.35 (KEP-5593).
"""

from __future__ import annotations

from typing import Final

INITIAL_SECONDS: Final = 10.0
MAX_SECONDS: Final = 300.0
RESET_SECONDS: Final = 600.0


def restart_delay(failures: int, cap: float = MAX_SECONDS) -> float:
    """Seconds from its end to the next start of a container that ended `failures` times in a row."""
    if failures < 2:
        return 0.0
    # A power beyond the cap would only be a large number.
    return min(cap, min(cap, INITIAL_SECONDS) * 2.0 ** min(failures - 2, 16))


def failures_after(failures: int, ran_seconds: float) -> int:
    """The ends in a row, counting the one after it ran for so long."""
    return 1 if ran_seconds >= RESET_SECONDS else failures + 1
