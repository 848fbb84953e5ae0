"""Tolerations of a pod and of its RuntimeClass together: none that another one covers, against what each of them tolerates."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from rayched.api.admission import apply_runtime_class, qos_class
from rayched.api.tolerations import tolerates
from rayched.v1.core_pb2 import Pod, Taint, Toleration
from rayched.v1.workloads_pb2 import RuntimeClass

EFFECTS = ("NoSchedule", "NoExecute")
TAINTS = [Taint(key=key, value=value, effect=effect) for key, value, effect in product("abc", ("", "x", "y"), EFFECTS)]
Amounts = dict[str, str]
FOR_EVER = 10**9


def drawn(random: Random) -> Toleration:
    """One that validation lets through: without a key it is for all taints, and Exists has no value."""
    key, exists = random.choice(("", "a", "a", "b")), random.random() < 0.5
    found = Toleration(key=key, operator="Exists" if exists or not key else random.choice(("", "Equal")))
    found.effect = random.choice(("", "NoSchedule", "NoExecute"))
    if found.operator != "Exists":
        found.value = random.choice(("", "x"))
    if random.random() < 0.5:
        found.toleration_seconds = random.choice((5, 9))
    return found


def seconds(toleration: Toleration) -> int:
    return toleration.toleration_seconds if toleration.HasField("toleration_seconds") else FOR_EVER


def covers(wide: Toleration, narrow: Toleration) -> bool:
    """For each taint, and for as long."""
    return seconds(wide) >= seconds(narrow) and all(tolerates(wide, taint) for taint in TAINTS if tolerates(narrow, taint))


@pytest.mark.parametrize("seed", range(200))
def test_of_all_tolerations_those_are_left_that_no_other_covers(seed: int) -> None:
    random, pod = Random(seed), Pod()
    pod.spec.runtime_class_name = "r"
    own, more = ([drawn(random) for _ in range(random.randint(0, 3))] for _ in range(2))
    pod.spec.tolerations.extend(own)
    runtime = RuntimeClass(metadata={"name": "r"}, handler="r")
    runtime.scheduling.tolerations.extend(more)
    assert apply_runtime_class(pod, {"r": runtime}) == []
    if not more:
        assert list(pod.spec.tolerations) == own, "nothing is merged, so nothing is left out"
        return
    expected: list[Toleration] = []
    for place, one in enumerate(everything := [*own, *more]):
        if not any(covers(other, one) for other in (*expected, *everything[place + 1 :])):
            expected.append(one)
    assert list(pod.spec.tolerations) == expected


def with_resources(*containers: tuple[Amounts, Amounts], own: tuple[Amounts, Amounts] = ({}, {})) -> Pod:
    """Requests and limits of containers, and of the pod itself."""
    pod = Pod()
    for requests, limits in containers:
        container = pod.spec.containers.add(name="c")
        for name, amount in requests.items():
            container.resources.requests[name].string = amount
        for name, amount in limits.items():
            container.resources.limits[name].string = amount
    for name, amount in own[0].items():
        pod.spec.resources.requests[name].string = amount
    for name, amount in own[1].items():
        pod.spec.resources.limits[name].string = amount
    return pod


ALL = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (with_resources(({}, {"cpu": "0", "memory": "0"})), "BestEffort"),
        (with_resources(({}, {"cpu": "0", "memory": "1Gi"})), "Burstable"),
        (with_resources(({}, {"cpu": "1", "memory": "0"})), "Burstable"),
        (with_resources(({"memory": "1"}, {})), "Burstable"),
        (with_resources(({}, {"memory": "1"})), "Burstable"),
        (with_resources(({"x.com/y": "1"}, {"x.com/y": "1"})), "BestEffort"),
        (with_resources((ALL, ALL), (ALL, ALL)), "Guaranteed"),
        (with_resources((ALL, ALL), ({}, {"cpu": "1"})), "Burstable"),
        (with_resources((ALL, ALL), own=({"hugepages-2Mi": "2Mi"}, {"hugepages-2Mi": "2Mi"})), "Guaranteed"),
        (with_resources((ALL, ALL), own=({"cpu": "2"}, {})), "Burstable"),
        (with_resources((ALL, ALL), own=({}, {"cpu": "2"})), "Burstable"),
        (with_resources(({}, {}), own=(ALL, ALL)), "Guaranteed"),
        (with_resources(({}, {}), own=({"cpu": "0"}, {})), "BestEffort"),
        (with_resources(({"cpu": "500m"}, ALL)), "Burstable"),
        (with_resources(({"memory": "1Mi"}, ALL)), "Burstable"),
    ],
)
def test_the_class_of_service_of_a_pod_whose_resources_are_partly_set(pod: Pod, expected: str) -> None:
    assert qos_class(pod) == expected
