"""A moment as Kubernetes writes it in objects, and commands to people: RFC 3339, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def moment_text(seconds: float) -> str:
    """As 2025-01-31T12:00:00Z. `seconds`: since 1970; parts of one are left out."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
