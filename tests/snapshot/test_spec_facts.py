"""What a serialised spec says is what the pod says that it was serialised from."""

from __future__ import annotations

from random import Random

import pytest
from google.protobuf.message import DecodeError

from rayched.snapshot.spec_facts import facts_of_bytes, facts_of_pod, host_ports_of
from rayched.v1.core_pb2 import Pod
from tests.snapshot.objects import a_pod


def a_random_pod(random: Random) -> Pod:
    pod = Pod()
    for number in range(random.choice((1, 1, 2))):
        container = pod.spec.containers.add(name=f"c{number}", image="app")
        if random.random() < 0.7:
            container.resources.requests["cpu"].string = random.choice(("100m", "1"))
        if random.random() < 0.3:
            container.ports.add(container_port=80, host_port=random.choice((0, 80)), host_ip=random.choice(("", "10.0.0.1")))
    if random.random() < 0.3:
        init = pod.spec.init_containers.add(name="init", image="app")
        init.resources.requests["memory"].string = "1Gi"
        init.ports.add(container_port=81, host_port=81)
        if random.random() < 0.5:
            init.restart_policy = "Always"
    if random.random() < 0.3:
        pod.spec.overhead["cpu"].string = "10m"
    if random.random() < 0.3:
        pod.spec.tolerations.add(key="hot", operator="Exists")
    if random.random() < 0.3:
        pod.spec.priority = random.choice((5, -1))
    if random.random() < 0.3:
        pod.spec.scheduler_name = "other"
    if random.random() < 0.2:
        pod.spec.affinity.SetInParent()
    if random.random() < 0.2:
        pod.spec.topology_spread_constraints.add(topology_key="zone")
    if random.random() < 0.3:
        pod.spec.scheduling_group.pod_group_name = random.choice(("train", "solve"))
    if random.random() < 0.2:
        pod.spec.preemption_policy = "Never"
    return pod


@pytest.mark.parametrize("seed", range(4))
def test_bytes_say_what_the_pod_says(seed: int) -> None:
    random = Random(seed)
    for _ in range(60):
        pod = a_random_pod(random)
        spec = pod.spec.SerializeToString(deterministic=True)
        facts, (containers, bare) = facts_of_bytes(spec)
        assert facts == facts_of_pod(pod)
        without = Pod()
        without.CopyFrom(pod)
        without.spec.ClearField("tolerations")
        without.spec.ClearField("scheduling_group")
        assert containers + bare == without.spec.SerializeToString(deterministic=True)
        parsed = Pod()
        parsed.spec.MergeFromString(containers)
        assert list(parsed.spec.containers) == list(pod.spec.containers) and not parsed.spec.overhead


def test_equal_containers_are_the_same_object() -> None:
    one, other = a_pod({"cpu": "1"}), a_pod({"cpu": "1"})
    other.spec.scheduler_name = "other"
    parts = [facts_of_bytes(pod.spec.SerializeToString(deterministic=True))[1][0] for pod in (one, other)]
    assert parts[0] is parts[1]


@pytest.mark.parametrize("case", ["a node", "not in order", "cut off", "an unknown field"])
def test_a_spec_that_is_not_written_as_it_should_be_is_refused(case: str) -> None:
    pod = a_pod({"cpu": "1", "memory": "1Gi"})
    pod.spec.scheduler_name = "other"
    spec = pod.spec.SerializeToString(deterministic=True)
    match case:
        case "a node":
            pod.spec.node_name = "n1"
            spec = pod.spec.SerializeToString(deterministic=True)
        case "not in order":
            only = Pod()
            only.spec.scheduler_name = "other"
            spec = only.spec.SerializeToString() + a_pod({"cpu": "1"}).spec.SerializeToString(deterministic=True)
        case "cut off":
            spec = spec[:-2]
        case _:
            spec += b"\xfa\xff\x7f\x01x"
    with pytest.raises((ValueError, IndexError, DecodeError)):
        facts_of_bytes(spec)


@pytest.mark.parametrize(
    ("host_port", "host_ip", "protocol", "expected"),
    [
        (0, "", "", ()),
        (80, "", "", (("TCP", 80, "0.0.0.0"),)),
        (80, "10.0.0.1", "UDP", (("UDP", 80, "10.0.0.1"),)),
    ],
)
def test_host_ports_have_the_defaults_of_the_field(
    host_port: int, host_ip: str, protocol: str, expected: tuple[tuple[str, int, str], ...]
) -> None:
    pod = a_pod(ports=[(protocol, host_port, host_ip)] * 2)
    assert host_ports_of(pod) == expected, "each once"


def test_ports_of_sidecars_count_and_those_of_init_containers_that_end_do_not() -> None:
    pod = a_pod(ports=[("TCP", 82, "")])
    for port, policy in ((80, ""), (81, "Always")):
        pod.spec.init_containers.add(name=f"i{port}", restart_policy=policy).ports.add(host_port=port)
    assert [port for _, port, _ in host_ports_of(pod)] == [81, 82]
