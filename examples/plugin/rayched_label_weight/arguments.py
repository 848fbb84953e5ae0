"""The arguments of both forms: which labels count, and how much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def weights_of(args: Any) -> Mapping[tuple[str, str], int]:
    """`{weights: {"tier=gold": 3, "disktype=ssd": 1}}` as weights by key and value. A ValueError stops the replica."""
    given = args.get("weights") if isinstance(args, dict) else None
    if not isinstance(given, dict) or not given:
        raise ValueError('weights: is required, as in {"tier=gold": 3}')
    found: dict[tuple[str, str], int] = {}
    for text, weight in given.items():
        key, equals, value = str(text).partition("=")
        if not key or not equals:
            raise ValueError(f"weights: found {text!r}, want key=value")
        if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= 1000:
            raise ValueError(f"weights[{text}]: found {weight!r}, want 1 to 1000")
        found[key, value] = weight
    return found
