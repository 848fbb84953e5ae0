"""The election's part in a health check: a leader that neither renews nor steps down is broken.

Source: client-go's HealthzAdaptor. There an elector leads when the record it saw last names it; here also when it has not
finished stepping down, so that an elector that stepped down in good order stays healthy while the store is away.
"""

from __future__ import annotations

DEFAULT_TOLERANCE_SECONDS = 20.0


def check_leading(
    name: str, *, holds: bool, since_renewal_seconds: float, lease_duration: float, tolerance_seconds: float
) -> str | None:
    """None: healthy. `holds`: the record names this candidate and it has not stepped down."""
    if holds and since_renewal_seconds > lease_duration + tolerance_seconds:
        return f"failed election to renew leadership on lease {name}"
    return None
