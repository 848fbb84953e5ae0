"""Each bug that is planted into the rules of access fails a test of this folder, which passes without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import pytest

from rayched.access.authorizing import Authorizer
from rayched.server.call_guard import CallGuard
from rayched.v1.workloads_pb2 import ReplicaSet
from tests.access import (
    test_access_service,
    test_answers,
    test_bindings,
    test_call_guard,
    test_http_policy,
    test_matrix,
    test_object_rules,
    test_refused_callers,
    test_ways_in,
)
from tests.access.matrix import bindings, table_of
from tests.planted_bugs import ACCESS, planted
from tests.server import test_edge, test_revocations


def _cells_of(call: str) -> Callable[[], None]:
    return lambda: test_matrix.test_each_cell_answers_as_it_is_written(CallGuard(Authorizer(table_of(*bindings()))), call)


def _template(case: str) -> Callable[[], None]:
    return lambda: test_object_rules.test_a_template_is_judged_as_the_pods_that_it_makes(case, ReplicaSet)


NOTICED_BY: Final[Mapping[str, Callable[[], None]]] = MappingProxyType(
    {
        "a role is not looked at": _cells_of("Submission.Delete"),
        "a namespace is not looked at": _cells_of("Submission.Get"),
        "no namespace is one's own": _cells_of("Submission.List"),
        "the first of many is judged": _cells_of("Watch.Watch"),
        "each node is one's own": test_call_guard.test_an_agent_of_many_answers_for_those_of_its_binding,
        "subjects are prefixes": test_bindings.test_a_subject_is_one_identity_and_no_prefix_of_others,
        "anybody asks for others": lambda: test_call_guard.test_nobody_else_asks_for_others("viewer"),
        "gateways ask for anybody": lambda: test_call_guard.test_a_gateway_asks_for_users_of_its_cluster_alone(
            test_call_guard.IDENTITIES["replica"]
        ),
        "a request is read before it is judged": test_edge.test_who_may_not_is_refused_before_its_request_is_there,
        "the request is not judged": test_call_guard.test_a_refusal_is_the_same_whatever_there_is,
        "streams outlive their right": test_call_guard.test_a_stream_ends_when_its_right_does,
        "objects are not judged": lambda: test_object_rules.test_a_pod_that_says_what_it_may_not_is_refused_by_its_field(
            "B64 a node"
        ),
        "templates are not judged": _template("B64 a node"),
        "old templates may grow": _template("B65 a class above 0 without a list"),
        "answers tell everybody everything": test_answers.test_the_seed_is_an_administrators,
        "pods alike are not judged": lambda: test_ways_in.test_a_new_pod_is_refused_by_the_field(
            "B65", "SubmitMany, pods alike were admitted"
        ),
        "tokens do not expire": test_call_guard.test_a_token_counts_as_it_was_made_and_until_it_expires,
        "of a token the id is enough": test_call_guard.test_a_token_counts_as_it_was_made_and_until_it_expires,
        "tokens outlive their maker's role": test_call_guard.test_a_token_for_another_one_counts_while_its_maker_is_administrator,
        "revocations are not looked at": test_revocations.test_what_etcd_has_that_is_no_revocation_refuses_nobody,
        "certificates outlive their tokens": (
            test_refused_callers.test_a_certificate_counts_while_the_token_behind_it_does_at_a_gateway_as_well
        ),
        "a path is read without a role": test_http_policy.test_each_cell_answers_as_it_is_written,
        "the last administrator may go": test_access_service.test_the_last_administrator_stays,
    }
)
"""The test that is to notice each bug."""


def test_there_is_a_test_for_each_bug() -> None:
    assert NOTICED_BY.keys() == ACCESS.keys()
    assert len(ACCESS) >= 12


@pytest.mark.parametrize("bug", ACCESS)
def test_a_planted_bug_is_noticed(bug: str) -> None:
    notices = NOTICED_BY[bug]
    notices()

    with planted(bug), pytest.raises((AssertionError, pytest.fail.Exception, TimeoutError)):
        notices()

    notices()
