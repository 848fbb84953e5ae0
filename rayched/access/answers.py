"""What is taken out of answers that the policy allows, by whom they are for. Pure; answers change in place.

| answer | viewer, submitter | operator | admin |
|---|---|---|---|
| GetSchedulerStatus | counts; nothing of processes and hosts | all | all |
| GetPlanBasis | no configuration, no seed | no seed | all |
| Explain | no seed | no seed | all |

Who knows the seed and the number of a decision can foretell which of several nodes that tie a pod gets, and so whom it runs
beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from types import MappingProxyType
from typing import Any, Final

from rayched.access.policy import AccessRole
from rayched.v1.services_pb2 import ExplainResponse, GetPlanBasisResponse, GetSchedulerStatusResponse

RULE_ACCESS_ANSWERS: bool = True
"""Broken by tests alone."""

Roles = Set[AccessRole]


def take_out(call: str, response: Any, roles: Roles) -> None:
    """What whoever was let by these roles is not to see of the answer."""
    cut = _CUTS.get(call)
    if cut is not None and AccessRole.ADMIN not in roles and RULE_ACCESS_ANSWERS:
        cut(response, roles)


def _status(response: GetSchedulerStatusResponse, roles: Roles) -> None:
    if AccessRole.OPERATOR not in roles:
        response.pids.clear()
        del response.pool[:]


def _plan_basis(response: GetPlanBasisResponse, roles: Roles) -> None:
    response.seed = 0
    if AccessRole.OPERATOR not in roles:
        response.configuration = ""


def _explanation(response: ExplainResponse, _: Roles) -> None:
    response.seed = 0
    if response.HasField("decision"):
        response.decision.seed = 0


_CUTS: Final[Mapping[str, Callable[[Any, Roles], None]]] = MappingProxyType(
    {
        "Scheduling.GetSchedulerStatus": _status,
        "Scheduling.GetPlanBasis": _plan_basis,
        "Scheduling.Explain": _explanation,
    }
)
