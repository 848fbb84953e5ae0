"""Requests of whole pods, against the rule worked out the slow way: what the pod uses at each moment of its life."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.api import resources
from rayched.v1.core_pb2 import Container, Pod

AMOUNTS = {"0": 0, "1": 1, "250m": Fraction(1, 4), "1n": Fraction(1, 10**9), "2": 2, "1Ki": 1024, "1.5": Fraction(3, 2)}
REQUESTS = st.dictionaries(st.sampled_from(["cpu", "memory", "x/gpu"]), st.sampled_from(sorted(AMOUNTS)))


def container(requests: dict[str, str], sidecar: bool = False) -> Container:
    found = Container()
    for name, text in requests.items():
        found.resources.requests[name].string = text
    if sidecar:
        found.restart_policy = "Always"
    return found


def peak(
    containers: list[dict[str, str]], init: list[tuple[dict[str, str], bool]], overhead: dict[str, str]
) -> dict[str, Fraction]:
    """The most of each resource that is in use at any moment: init containers one by one, sidecars from their turn on."""

    def used(*running: dict[str, str]) -> dict[str, Fraction]:
        names = {name for one in running for name in one}
        return {name: sum((Fraction(AMOUNTS[one[name]]) for one in running if name in one), Fraction(0)) for name in names}

    moments = []
    sidecars: list[dict[str, str]] = []
    for requests, sidecar in init:
        moments.append(used(*sidecars, requests))
        if sidecar:
            sidecars.append(requests)
    moments.append(used(*sidecars, *containers))
    names = {name for moment in moments for name in moment}
    most = {name: max(moment.get(name, Fraction(0)) for moment in moments) for name in names}
    for name, text in overhead.items():
        most[name] = most.get(name, Fraction(0)) + AMOUNTS[text]
    return most


def rounded(name: str, amount: Fraction) -> int:
    return -int(-amount * (1000 if name == "cpu" else 1) // 1)


@given(
    st.lists(REQUESTS, min_size=1, max_size=3),
    st.lists(st.tuples(REQUESTS, st.booleans()), max_size=4),
    st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(sorted(AMOUNTS))),
)
def test_a_pod_requests_the_most_that_it_uses_at_any_moment(
    containers: list[dict[str, str]], init: list[tuple[dict[str, str], bool]], overhead: dict[str, str]
) -> None:
    pod = Pod()
    pod.spec.containers.extend(container(one) for one in containers)
    pod.spec.init_containers.extend(container(one, sidecar) for one, sidecar in init)
    for name, text in overhead.items():
        pod.spec.overhead[name].string = text
    expected = {name: rounded(name, amount) for name, amount in peak(containers, init, overhead).items()}
    assert resources.pod_requests(pod) == expected
    assert resources.accounted_requests(pod) == expected


@pytest.mark.parametrize(
    ("requests", "milli_cpu", "memory"),
    [
        ([{}], 100, 200 * 2**20),
        ([{"cpu": "0", "memory": "0"}], 0, 0),
        ([{"cpu": "1"}, {}], 1100, 400 * 2**20),
        ([{"cpu": "1", "memory": "1Ki"}], 1000, 1024),
    ],
)
def test_only_an_absent_request_counts_as_the_default(requests: Any, milli_cpu: int, memory: int) -> None:
    pod = Pod()
    pod.spec.containers.extend(container(one) for one in requests)
    assert resources.non_zero_requests(pod) == (milli_cpu, memory)
    assert resources.score_requests(pod, ("cpu", "memory")) == (milli_cpu, memory)
    assert resources.balanced_requests(pod, ("x/gpu",)) == (0,)


TEXTS = st.sampled_from(
    ["0", "1", "-1", "100m", "1n", "-1500m", "0.1Ki", "1.5Gi", "1e3", "9223372036854775807", "10E", "1e30", "-1e30"]
)


@given(st.dictionaries(st.sampled_from(["cpu", "memory", "ephemeral-storage", "pods", "gpu", "x/gpu", "hugepages-2Mi"]), TEXTS))
def test_a_single_container_is_counted_as_several_are(requests: dict[str, str]) -> None:
    only = container(requests).resources
    assert resources._plain_one(only.requests) == resources._plain_several([only])


@pytest.mark.parametrize(
    ("name", "scalar", "extended"),
    [
        ("example.com/gpu", True, True),
        ("hugepages-2Mi", True, False),
        ("attachable-volumes-x", True, False),
        ("kubernetes.io/thing", True, False),
        ("requests.example.com/gpu", False, False),
        ("gpu", False, False),
        ("cpu", False, False),
    ],
)
def test_the_name_of_a_resource_tells_whether_nodes_count_it(name: str, scalar: bool, extended: bool) -> None:
    assert resources.is_scalar(name) is scalar
    assert resources.is_extended(name) is extended


def test_what_is_kept_of_sums_is_about_the_amounts_and_bounded() -> None:
    pod = Pod()
    pod.spec.containers.append(container({"cpu": "1", "x/gpu": "2", "gpu": "3"}))
    first = resources.pod_requests(pod)
    assert first == {"cpu": 1000, "x/gpu": 2}, "gpu is no resource that nodes count"
    assert resources.balanced_requests(pod, ("gpu",)) == (3,)
    first["cpu"] = 7
    assert resources.pod_requests(pod) == {"cpu": 1000, "x/gpu": 2}, "what a caller does with its answer is its own affair"
    pod.spec.containers[0].resources.requests["cpu"].string = "1500m"
    assert resources.pod_requests(pod) == {"cpu": 1500, "x/gpu": 2}
    status = pod.status.container_statuses.add(name=pod.spec.containers[0].name)
    status.resources.requests["cpu"].string = "2"
    assert resources.accounted_requests(pod)["cpu"] == 2000, "a resize counts"
    assert resources.pod_requests(pod)["cpu"] == 1500
    both = resources.pod_requests(pod), resources.accounted_requests(pod), resources.non_zero_requests(pod)
    assert resources.room_taken(pod) == both
    pod.ClearField("status")
    both = resources.pod_requests(pod), resources.accounted_requests(pod), resources.non_zero_requests(pod)
    assert resources.room_taken(pod) == both
    for amount in range(resources._PLAIN_MAX + 10):
        pod = Pod()
        pod.spec.containers.append(container({"memory": str(amount)}))
        assert resources.pod_requests(pod) == {"memory": amount}
    assert resources._plain.cache_info().currsize <= resources._PLAIN_MAX
    pod.spec.containers.extend(container({"memory": str(amount)}) for amount in range(resources._PLAIN_CONTAINERS_MAX))
    misses = resources._plain.cache_info().misses
    assert resources.pod_requests(pod) == {"memory": amount + sum(range(resources._PLAIN_CONTAINERS_MAX))}
    assert resources._plain.cache_info().misses == misses, "large pods are added up each time"


def test_overhead_is_added_to_requests_of_the_pod_as_a_whole_once_however_often_they_are_asked_for() -> None:
    pod = Pod()
    pod.spec.containers.add(name="c")
    pod.spec.overhead["cpu"].string = "100m"
    pod.spec.resources.requests["cpu"].string = "1.5"
    assert [resources.pod_requests(pod)["cpu"] for _ in range(3)] == [1600, 1600, 1600]


def test_a_sum_beyond_the_largest_quantity_overflows_an_int64() -> None:
    pod = Pod()
    for name in ("a", "b"):
        pod.spec.containers.add(name=name).resources.requests["memory"].string = "7Ei"
    assert resources.pod_requests(pod)["memory"] == 14 * 2**60 - 2**64
