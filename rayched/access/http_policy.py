"""Who may read what over HTTP, where a replica asks who reads: one row a path, as the table of the API's calls has one a call
(policy.py). What has no row is shown to nobody. Pure.

The role `monitor` has rows here and none there: whoever scrapes metrics makes no call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from rayched.access.policy import AccessRole, PolicyError

REASONS: Final = "?verbose"
"""What a health check says beyond that it passes or fails; in the place of a path."""

_ANYBODY: Final = frozenset({AccessRole.ANY})
_WATCHES: Final = frozenset({AccessRole.MONITOR, AccessRole.OPERATOR, AccessRole.ADMIN})
_RUNS: Final = frozenset({AccessRole.OPERATOR, AccessRole.ADMIN})

HTTP_POLICY: Final[Mapping[str, frozenset[AccessRole]]] = MappingProxyType(
    {
        "/livez": _ANYBODY,
        "/readyz": _ANYBODY,
        "/healthz": _ANYBODY,
        REASONS: _WATCHES,
        "/metrics": _WATCHES,
        "/metrics/slis": _WATCHES,
        "/statusz": _RUNS,
        "/configz": _RUNS,
        "/version": _RUNS,
    }
)
"""The roles that may read each; ANY: whoever asks, also without saying who."""


def readers_of(path: str) -> frozenset[AccessRole]:
    """Empty for a path without a row."""
    return HTTP_POLICY.get(path, frozenset())


def check_paths(paths: Iterable[str], policy: Mapping[str, frozenset[AccessRole]] = HTTP_POLICY) -> None:
    """Raises PolicyError for a path that the table does not have."""
    faults = [f"the path {path} has no row in the policy: nobody may read it" for path in sorted(set(paths) - policy.keys())]
    if faults:
        raise PolicyError("; ".join(faults))
