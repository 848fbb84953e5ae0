"""The phase and the conditions of a pod, from how its containers are. Pure.

| case, the first that matches | phase |
|---|---|
| an init container failed for good | Failed |
| init containers are not done and no other one was ever started; or one waits for its first start | Pending |
| one runs | Running |
| all ended, and none is started again: all with exit code 0 | Succeeded, else Failed |
| all ended, and one will be started again | Running |
| else | Pending |

Source: getPhase of kubelet, Kubernetes 1.34.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class ContainerRole(enum.Enum):
    """What a container is for."""

    INIT = "init"
    SIDECAR = "sidecar"
    REGULAR = "regular"


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container as the phase depends on it. `exit_code` None: it never ended."""

    role: ContainerRole
    running: bool = False
    exit_code: int | None = None
    unknown: bool = False
    passed: bool = False
    """Of a sidecar: it runs and its startup probe has passed, if it has one."""


def init_is_done(views: Sequence[ContainerView]) -> bool:
    """Whether the regular containers may start."""
    for view in views:
        if view.role is ContainerRole.INIT and (view.running or view.exit_code != 0):
            return False
        if view.role is ContainerRole.SIDECAR and not view.passed:
            return False
    return True


def is_restarted(role: ContainerRole, exit_code: int, policy: str) -> bool:
    """Whether a container that ended so is started again while the pod goes on."""
    if role is ContainerRole.SIDECAR:
        return True
    if role is ContainerRole.INIT:
        return exit_code != 0 and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def phase_of(views: Sequence[ContainerView], policy: str, *, ending: bool) -> str:
    """`policy` is the pod's restartPolicy; `ending`: nothing is started any more."""
    regular = [view for view in views if view.role is ContainerRole.REGULAR]
    if any(_failed_for_good(view, policy, ending) for view in views if view.role is ContainerRole.INIT):
        return "Failed"
    running = sum(view.running for view in regular)
    unknown = sum(view.unknown for view in regular)
    ever = any(view.running or view.exit_code is not None for view in regular)
    if not ever and not init_is_done([view for view in views if view.role is not ContainerRole.REGULAR]):
        return "Pending"
    if any(not view.running and not view.unknown and view.exit_code is None for view in regular):
        return "Pending"
    if unknown:
        return "Pending"
    if running:
        return "Running"
    codes = [view.exit_code or 0 for view in regular]
    if not ending and any(is_restarted(ContainerRole.REGULAR, code, policy) for code in codes):
        return "Running"
    return "Succeeded" if not any(codes) else "Failed"


def _failed_for_good(view: ContainerView, policy: str, ending: bool) -> bool:
    failed = not view.running and view.exit_code not in (None, 0)
    return failed and (ending or policy == "Never")
