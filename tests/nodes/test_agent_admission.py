"""What an agent takes and refuses, what its node offers, and the scores of its containers: all without a machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rayched.api.well_known_taints import MEMORY_PRESSURE as MEMORY_TAINT
from rayched.nodes.agent.admission import ROOM_SECONDS, AgentAdmission
from rayched.nodes.agent.machine import Machine
from rayched.nodes.agent.node_object import NodeSize, NodeSizeError, node_object, set_conditions
from rayched.nodes.agent.oom_scores import oom_score_adj
from rayched.nodes.agent.process_specs import AttemptPlace, ConfigurationFault, RunPolicy, host_path, process_spec
from rayched.nodes.node_admission import NodeRefusal
from rayched.v1.core_pb2 import Container, Node, NodeStatus, Pod

MI, GI = 1 << 20, 1 << 30
MACHINE = Machine(4, 8 * GI, 100 * GI, "machine", "system", "boot", "6.1", "Linux", "amd64")
PREFIX = "Pod was rejected: "


def a_node() -> Node:
    size = NodeSize({"cpu": 4000, "memory": 8 * GI, "ephemeral-storage": 100 * GI, "pods": 2})
    return node_object("n1", "10.0.0.1", MACHINE, size, {"disktype": "ssd"}, "1.0")


def a_pod(name: str = "web", *, cpu: str = "", memory: str = "", limit: bool = False) -> Pod:
    pod = Pod()
    pod.metadata.name = pod.metadata.uid = name
    main = pod.spec.containers.add(name="main")
    for resource, text in (("cpu", cpu), ("memory", memory)):
        if text:
            main.resources.requests[resource].string = text
        if limit:
            main.resources.limits[resource].string = text
    return pod


def verdict(pod: Pod, *pressures: str, closed: str = "", taken: tuple[Pod, ...] = ()) -> NodeRefusal | None:
    admission = AgentAdmission(a_node())
    for one in taken:
        assert admission.placement.take(one) is None
    admission.pressures, admission.closed = pressures, closed
    found = admission.judge(pod, 0.0, someone_ends=False)
    assert not isinstance(found, float)
    return found


def misplaced() -> Pod:
    pod = a_pod()
    pod.spec.node_selector["disktype"] = "hdd"
    return pod


def with_port(name: str) -> Pod:
    pod = a_pod(name)
    pod.spec.containers[0].ports.add(container_port=80, host_port=80)
    return pod


@pytest.mark.row("N13")
def test_each_refusal_has_kubelets_reason_and_message() -> None:
    assert verdict(a_pod(), "MemoryPressure") == NodeRefusal("Evicted", f"{PREFIX}The node had condition: [MemoryPressure]. ")
    assert verdict(a_pod(), closed="Pod was rejected as the node is shutting down.") == NodeRefusal(
        "NodeShutdown", f"{PREFIX}Pod was rejected as the node is shutting down."
    )
    full = f"{PREFIX}Node didn't have enough resource: "
    assert verdict(a_pod(), taken=(a_pod("a"), a_pod("b"))) == NodeRefusal(
        "OutOfpods", f"{full}pods, requested: 1, used: 2, capacity: 2"
    )
    assert verdict(a_pod(cpu="1"), taken=(a_pod("a", cpu="3500m"),)) == NodeRefusal(
        "OutOfcpu", f"{full}cpu, requested: 1000, used: 3500, capacity: 4000"
    )
    assert verdict(a_pod(memory="9Gi")) == NodeRefusal(
        "OutOfmemory", f"{full}memory, requested: {9 * GI}, used: 0, capacity: {8 * GI}"
    )
    assert verdict(misplaced()) == NodeRefusal(
        "NodeAffinity", f"{PREFIX}Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    )
    assert verdict(with_port("b"), taken=(with_port("a"),)) == NodeRefusal(
        "NodePorts", f"{PREFIX}Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    )
    assert verdict(a_pod()) is None


@pytest.mark.row("N14")
def test_the_first_reason_in_order_is_told() -> None:
    pod = misplaced()
    pod.spec.containers[0].resources.requests["cpu"].string = "9"
    pod.spec.containers[0].ports.add(container_port=80, host_port=80)
    admission = AgentAdmission(a_node())
    assert admission.placement.take(with_port("a")) is None
    admission.placement.node.spec.taints.add(key="x", effect="NoExecute")
    reasons = []
    steps: Sequence[tuple[tuple[str, ...], Callable[[], None]]] = (
        (("DiskPressure",), lambda: None),
        ((), lambda: None),
        ((), partial(pod.spec.containers[0].ClearField, "resources")),
        ((), partial(pod.spec.ClearField, "node_selector")),
        ((), partial(pod.spec.containers[0].ClearField, "ports")),
    )
    for pressures, change in steps:
        change()
        admission.pressures = pressures
        found = admission.judge(pod, 0.0, someone_ends=False)
        assert isinstance(found, NodeRefusal)
        reasons.append(found.reason)
    assert reasons == ["Evicted", "OutOfcpu", "NodeAffinity", "NodePorts", "TaintToleration"]


@pytest.mark.row("N15")
def test_memory_pressure_alone_refuses_best_effort_pods_that_do_not_tolerate_it() -> None:
    tolerant, critical = a_pod(), a_pod()
    tolerant.spec.tolerations.add(key=MEMORY_TAINT, operator="Exists", effect="NoSchedule")
    critical.spec.priority = 2_000_000_000
    told = {
        "best effort": verdict(a_pod(), "MemoryPressure"),
        "burstable": verdict(a_pod(cpu="1"), "MemoryPressure"),
        "tolerant": verdict(tolerant, "MemoryPressure"),
        "critical": verdict(critical, "MemoryPressure"),
    }
    assert [name for name, found in told.items() if found is not None] == ["best effort"]


@pytest.mark.row("N16")
@pytest.mark.parametrize("pressures", [("DiskPressure",), ("PIDPressure",), ("MemoryPressure", "DiskPressure")])
def test_other_pressures_refuse_all_but_critical_pods(pressures: tuple[str, ...]) -> None:
    tolerant, critical = a_pod(cpu="1"), a_pod()
    tolerant.spec.tolerations.add(operator="Exists")
    critical.spec.priority = 2_000_000_000
    found = verdict(tolerant, *pressures)
    assert found is not None
    assert found.message == f"{PREFIX}The node had condition: [{', '.join(sorted(pressures))}]. "
    assert verdict(critical, *pressures) is None


@pytest.mark.row("N17")
def test_a_refused_pod_holds_nothing() -> None:
    admission = AgentAdmission(a_node())
    for number in range(5):
        assert admission.judge(a_pod(f"large-{number}", cpu="9"), 0.0, someone_ends=False) is not None
    assert admission.judge(a_pod("fits", cpu="4"), 0.0, someone_ends=False) is None


@pytest.mark.row("N18")
def test_a_pod_waits_for_room_that_an_ending_pod_holds_and_no_longer_than_so_long() -> None:
    admission = AgentAdmission(a_node())
    assert admission.judge(a_pod("a", cpu="3"), 0.0, someone_ends=True) is None
    assert admission.judge(a_pod("b", cpu="2"), 1.0, someone_ends=True) == 1.0 + ROOM_SECONDS
    assert admission.judge(a_pod("b", cpu="2"), 20.0, someone_ends=True) == 1.0 + ROOM_SECONDS
    late = admission.judge(a_pod("b", cpu="2"), 31.0, someone_ends=True)
    assert isinstance(late, NodeRefusal) and late.reason == "OutOfcpu"
    assert isinstance(admission.judge(a_pod("b", cpu="2"), 32.0, someone_ends=True), float)
    admission.forget("a")
    assert admission.judge(a_pod("b", cpu="2"), 33.0, someone_ends=True) is None
    assert isinstance(admission.judge(misplaced(), 33.0, someone_ends=True), NodeRefusal), "room would not help"


@pytest.mark.row("N115")
def test_what_a_pod_held_is_given_back_once() -> None:
    admission = AgentAdmission(a_node())
    for name in ("a", "b"):
        assert admission.judge(a_pod(name, cpu="2"), 0.0, someone_ends=False) is None
    for _ in range(3):
        admission.forget("a")
    assert admission.judge(a_pod("c", cpu="2"), 0.0, someone_ends=False) is None
    refusal = admission.judge(a_pod("d", cpu="1"), 0.0, someone_ends=False)
    assert isinstance(refusal, NodeRefusal) and refusal.reason == "OutOfpods"


@pytest.mark.row("N2")
def test_allocatable_is_capacity_less_what_is_reserved_and_the_hard_threshold() -> None:
    size = NodeSize(
        {"cpu": 4000, "memory": 10 * GI, "pods": 110}, {"memory": 1536 * MI, "cpu": 500}, {"cpu": 100}, {"memory": 500 * MI}
    )
    assert size.allocatable() == {"cpu": 3400, "memory": 8204 * MI, "pods": 110}
    node = node_object("n", "10.0.0.1", MACHINE, size, {}, "1")
    assert node.status.allocatable["memory"].string == f"{8204 << 10}Ki" and node.status.allocatable["cpu"].string == "3400m"


@pytest.mark.row("N3")
def test_more_reserved_than_there_is_names_the_terms() -> None:
    size = NodeSize({"memory": GI}, {"memory": 600 * MI}, {"memory": 300 * MI}, {"memory": 200 * MI})
    with pytest.raises(NodeSizeError) as caught:
        size.allocatable()
    terms = f"system-reserved {600 * MI}, agent-reserved {300 * MI} and the hard eviction threshold {200 * MI}"
    assert str(caught.value) == f"memory: capacity {GI} is less than {terms} together"


def test_conditions_have_kubelets_words() -> None:
    status = NodeStatus()
    set_conditions(status, ("MemoryPressure",), ("state dir not writable", "driver unhealthy"))
    assert [(one.type, one.status, one.reason, one.message) for one in status.conditions] == [
        ("Ready", "False", "KubeletNotReady", "state dir not writable, driver unhealthy"),
        ("MemoryPressure", "True", "KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ]


@pytest.mark.row("K10.13", "N107")
@pytest.mark.parametrize(
    ("pod", "score"),
    [
        (a_pod(), 1000),
        (a_pod(cpu="1", memory="1Gi", limit=True), -997),
        (a_pod(memory="1Gi"), 875),
        (a_pod(memory="4Gi"), 500),
        (a_pod(memory="1Mi"), 999),
        (a_pod(memory="8Gi"), 3),
        (a_pod(cpu="1"), 999),
    ],
)
def test_the_killers_score_follows_quality_and_request(pod: Pod, score: int) -> None:
    assert oom_score_adj(pod, pod.spec.containers[0], 8 * GI) == score


@pytest.mark.row("N107")
def test_a_sidecar_is_no_likelier_to_be_killed_than_what_it_serves_and_node_critical_pods_never() -> None:
    pod = a_pod(memory="4Gi")
    side = pod.spec.init_containers.add(name="side", restart_policy="Always")
    assert oom_score_adj(pod, side, 8 * GI) == 500
    pod.spec.priority = 2_000_001_000
    assert oom_score_adj(pod, side, 8 * GI) == -997


PLACE = AttemptPlace("n1", "10.0.0.1", 0, "/work", "/log")


def runs_as(policy: RunPolicy, *, pod_user: int | None = None, user: int | None = None, not_root: bool = False) -> object:
    pod = Pod()
    if pod_user is not None:
        pod.spec.security_context.run_as_user = pod_user
    container = Container(name="main", command=["x"])
    if user is not None:
        container.security_context.run_as_user = user
    if not_root:
        container.security_context.run_as_non_root = True
    return process_spec(pod, container, PLACE, policy)["user"]


def test_users_are_those_that_the_node_allows() -> None:
    root, own = RunPolicy(0, 0), RunPolicy(1000, 1000)
    some = RunPolicy(0, 0, allowed_users=((8, 8), (1000, 2000)))
    assert runs_as(root) == runs_as(root, user=65534) == 65534
    assert runs_as(some, user=1234) == 1234 and runs_as(some, pod_user=7, user=8) == 8
    assert runs_as(own) is None and runs_as(own, user=1000) is None
    assert runs_as(RunPolicy(0, 0, allow_root=True), user=0) == 0
    for fault, policy, arguments in (
        ("cannot run as user 0, --allow-root-pods is not set on this node", root, {"user": 0}),
        ("cannot run as user 0, its runAsNonRoot forbids it", RunPolicy(0, 0, allow_root=True), {"user": 0, "not_root": True}),
        ("runAsUser 5 is not allowed on this node; allowed are 65534", root, {"user": 5}),
        (
            "runAsUser 5 is not allowed on this node; allowed are 65534, 10-20",
            RunPolicy(0, 0, allowed_users=((10, 20),)),
            {"user": 5},
        ),
        ("runAsUser 5 is not possible, this node's agent is not root and runs all as 1000", own, {"user": 5}),
    ):
        with pytest.raises(ConfigurationFault) as caught:
            runs_as(policy, **arguments)  # type: ignore[arg-type]
        assert str(caught.value) == f'container "main": {fault}'


def groups_of(policy: RunPolicy, **context: object) -> object:
    pod = Pod()
    for name, value in context.items():
        if name == "supplemental_groups":
            pod.spec.security_context.supplemental_groups.extend(value)  # type: ignore[arg-type]
        else:
            setattr(pod.spec.security_context, name, value)
    found = process_spec(pod, Container(name="main", command=["x"]), PLACE, policy)
    return found["group"], found["groups"]


def test_groups_are_those_that_the_node_allows() -> None:
    root = RunPolicy(0, 0)
    some = RunPolicy(0, 0, allowed_users=((1234, 1234),), allowed_groups=((10, 20),))
    assert groups_of(root) == groups_of(root, run_as_group=65534) == (65534, [])
    assert groups_of(some, run_as_user=1234, fs_group=10, supplemental_groups=[1234, 20]) == (1234, [1234, 20, 10])
    for context, fault in (
        ({"run_as_group": 0}, "runAsGroup 0 is not possible, --allow-root-pods is not set on this node"),
        ({"fs_group": 0}, "fsGroup 0 is not possible, --allow-root-pods is not set on this node"),
        ({"supplemental_groups": [10, 0]}, "supplementalGroups 0 is not possible, --allow-root-pods is not set on this node"),
        ({"run_as_group": 6}, "runAsGroup 6 is not allowed on this node; allowed are 65534, 10-20"),
        ({"fs_group": 6}, "fsGroup 6 is not allowed on this node; allowed are 65534, 10-20"),
        ({"supplemental_groups": [6]}, "supplementalGroups 6 is not allowed on this node; allowed are 65534, 10-20"),
    ):
        with pytest.raises(ConfigurationFault) as caught:
            groups_of(some, **context)
        assert str(caught.value) == f'container "main": {fault}'


def test_an_environment_does_not_grow_without_bounds() -> None:
    doubling = Container(name="main", command=["x"])
    doubling.env.add(name="A0", value="x" * 1024)
    for number in range(1, 40):
        doubling.env.add(name=f"A{number}", value=f"$(A{number - 1})$(A{number - 1})")
    many = Container(name="main", command=["x"])
    many.env.add(name="A", value="x" * (100 << 10))
    for number in range(11):
        many.env.add(name=f"B{number}", value="$(A)")
    long = Container(name="main", command=["x" * ((128 << 10) + 1)])
    for container, fault in (
        (doubling, "env A8 is longer than 131072 characters when its variables are filled in"),
        (many, "its command and environment are longer than 1048576 characters"),
        (long, "an argument is longer than 131072 characters when its variables are filled in"),
    ):
        with pytest.raises(ConfigurationFault) as caught:
            process_spec(Pod(), container, PLACE, RunPolicy(0, 0))
        assert str(caught.value) == f'container "main": {fault}'


def test_a_host_path_is_where_its_links_lead(tmp_path: Path) -> None:
    root = tmp_path.resolve() / "allowed"
    root.mkdir()
    (root / "out").symlink_to("/etc")
    (root / "in").mkdir()
    policy = RunPolicy(0, 0, host_paths=(str(root),))
    assert host_path(f"{root}/in", policy) == f"{root}/in"
    for path in (f"{root}/out", f"{root}/../other"):
        with pytest.raises(ConfigurationFault, match="is not allowed on this node"):
            host_path(path, policy)
    place = replace(PLACE, volumes={"v": "/v"})
    for path in ("/etc", "../..", "a/../../b"):
        container = Container(name="main", command=["x"])
        container.volume_mounts.add(name="v", sub_path=path)
        with pytest.raises(ConfigurationFault, match="want a path below the volume"):
            process_spec(Pod(), container, place, policy)
