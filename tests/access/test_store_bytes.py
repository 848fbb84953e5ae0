"""Bytes of objects that one namespace may have written: on every way in, and nothing is written of what is refused."""

from __future__ import annotations

import string
from collections.abc import Callable

import pytest

from rayched.server.errors import ApiFailure, Code
from rayched.v1.core_pb2 import Pod
from tests.access.services_over_model import ServicesOverModel
from tests.server.objects import a_pod

SIZE = 240 << 10


def fat(name: str, letter: str = "x", namespace: str = "team-a") -> Pod:
    pod = a_pod(name, namespace=namespace)
    pod.metadata.annotations["pad"] = letter * SIZE
    return pod


def applied_again(services: ServicesOverModel, number: int) -> ApiFailure | None:
    return failure_of(lambda: services.apply("submitter", fat("web", string.ascii_letters[number])))


def submitted(services: ServicesOverModel, number: int) -> ApiFailure | None:
    return failure_of(lambda: services.submit("submitter", fat(f"pod-{number}")))


def submitted_in_a_batch(services: ServicesOverModel, number: int) -> ApiFailure | None:
    (result,) = services.submit_many("submitter", fat(f"pod-{number}")).results
    return None if not result.outcome.code else ApiFailure(Code.RESOURCE_EXHAUSTED, result.outcome.message)


def failure_of(work: Callable[[], object]) -> ApiFailure | None:
    try:
        work()
    except ApiFailure as failure:
        return failure
    return None


@pytest.mark.row("B96")
@pytest.mark.parametrize("write", [applied_again, submitted, submitted_in_a_batch])
def test_a_namespace_has_so_many_bytes_a_second_and_no_more(
    write: Callable[[ServicesOverModel, int], ApiFailure | None],
) -> None:
    """37 writes of 240 KiB at once are 9 MiB; two seconds' worth is the burst."""
    services = ServicesOverModel()
    written = 0
    for number in range(37):
        services.show()
        before = services.revision
        failure = write(services, number)
        if failure is None:
            written += 1
            continue
        assert failure.code is Code.RESOURCE_EXHAUSTED, failure
        assert "too many bytes are written; 2097152 a second are allowed for a namespace" in failure.message
        assert services.revision == before
    # 4 MiB, and the object that goes beyond it.
    assert written == 18


def test_dry_runs_and_what_changes_nothing_cost_no_bytes_and_neither_do_others() -> None:
    services = ServicesOverModel()
    services.apply("submitter", fat("web"))
    services.show()
    for _ in range(40):
        services.apply("submitter", fat("web"))
        services.apply("submitter", fat("web", "y"), dry_run=True)
        services.submit("submitter", fat("other"), dry_run=True)
    for number in range(15):
        services.submit("submitter", fat(f"pod-{number}"))
    services.submit("admin", fat("pod", namespace="team-b"))
