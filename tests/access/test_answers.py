"""What is taken out of answers, by whom they are for."""

from __future__ import annotations

import pytest

from rayched.access.answers import take_out
from rayched.access.policy import AccessRole
from rayched.v1.services_pb2 import ExplainResponse, GetLeaderResponse, GetPlanBasisResponse, GetSchedulerStatusResponse

LESS = ({AccessRole.VIEWER}, {AccessRole.SUBMITTER}, {AccessRole.VIEWER, AccessRole.SUBMITTER})


@pytest.mark.row("B56")
def test_the_seed_is_an_administrators() -> None:
    for roles in (*LESS, {AccessRole.OPERATOR}):
        basis = GetPlanBasisResponse(seed=7, decisions=3, rows=["node-1"], configuration="profiles: []")
        take_out("Scheduling.GetPlanBasis", basis, roles)
        assert (basis.seed, basis.decisions, list(basis.rows)) == (0, 3, ["node-1"])
        assert basis.configuration == ("profiles: []" if AccessRole.OPERATOR in roles else "")
        explained = ExplainResponse(seed=7, decisions=3, node="node-1")
        explained.decision.seed = 7
        take_out("Scheduling.Explain", explained, roles)
        assert (explained.seed, explained.decision.seed, explained.node) == (0, 0, "node-1")
    whole = GetPlanBasisResponse(seed=7, configuration="profiles: []")
    take_out("Scheduling.GetPlanBasis", whole, {AccessRole.ADMIN, AccessRole.VIEWER})
    assert (whole.seed, whole.configuration) == (7, "profiles: []")


def test_an_explanation_without_a_past_gets_none() -> None:
    explained = ExplainResponse(seed=7)

    take_out("Scheduling.Explain", explained, {AccessRole.VIEWER})

    assert not explained.HasField("decision")


def test_processes_and_hosts_are_not_for_tenants() -> None:
    for roles in (*LESS, {AccessRole.OPERATOR}, {AccessRole.ADMIN}):
        status = GetSchedulerStatusResponse(nodes=3, pids={"scheduler": 7})
        status.pool.add(name="worker-0", host="host-a", pid=8)
        take_out("Scheduling.GetSchedulerStatus", status, roles)
        told = bool(roles & {AccessRole.OPERATOR, AccessRole.ADMIN})
        assert status.nodes == 3 and bool(status.pids) == bool(status.pool) == told


def test_other_answers_are_as_they_are() -> None:
    answer = GetLeaderResponse(holder="replica-0")

    take_out("Leadership.GetLeader", answer, {AccessRole.ANY})

    assert answer == GetLeaderResponse(holder="replica-0")
