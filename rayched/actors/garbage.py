"""How often the long-lived processes (replica, scheduler, queue, workers) collect garbage."""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLDS: Final = (50_000, 20, 100)


def collect_rarely() -> None:
    """What these processes hold lives long and makes no cycles: collecting as often as Python does by itself only walks it."""
    gc.set_threshold(*_THRESHOLDS)
