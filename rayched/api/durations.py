"""Durations as Go writes them, and with it Kubernetes: 1h30m, 500ms. Pure."""

from __future__ import annotations

import re
from typing import Final

_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration_seconds(text: str) -> float | None:
    """None: it is no duration. 0 needs no unit."""
    sign, digits = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if digits == "0":
        return 0.0
    parts = _PART.findall(digits)
    if not parts or "".join(number + unit for number, unit in parts) != digits:
        return None
    return sign * sum(float(number) * _SECONDS[unit] for number, unit in parts)
