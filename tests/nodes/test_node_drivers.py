"""Which driver a pod has, and what podman is told: by tables and by a program that behaves as podman."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from rayched.client.errors import ApiError
from rayched.nodes.agent.agent_metrics import AgentMetrics
from rayched.nodes.agent.disk import NodeDirectory, PodDirectory
from rayched.nodes.agent.drivers.container_driver import DriverFault, DriverFingerprint, DriverHealth
from rayched.nodes.agent.drivers.node_drivers import FINGERPRINT_SECONDS, NodeDrivers, driver_labels
from rayched.nodes.agent.drivers.podman_client import PodmanClient
from rayched.nodes.agent.drivers.podman_driver import PodmanDriver
from rayched.nodes.agent.drivers.process_driver import ProcessDriver
from rayched.nodes.agent.process_specs import AttemptPlace, ConfigurationFault
from rayched.testing.builders import a_node
from rayched.testing.builders import a_pod as a_test_pod
from rayched.testing.in_process import InProcessCluster
from rayched.v1.core_pb2 import Container, Pod
from rayched.v1.workloads_pb2 import RuntimeClass
from tests.nodes.driven_pod import IMAGE, a_policy
from tests.nodes.fake_podman import add_image, calls, installed


def a_pod(runtime_class: str = "", *, image: str = IMAGE, command: tuple[str, ...] = ("sleep", "1")) -> Pod:
    pod = Pod()
    pod.metadata.name = pod.metadata.uid = "web"
    pod.metadata.namespace = "default"
    pod.spec.containers.add(name="main", image=image, command=command)
    if runtime_class:
        pod.spec.runtime_class_name = runtime_class
    return pod


def nobody_asks(name: str) -> RuntimeClass | None:
    raise AssertionError(f"RuntimeClass {name} is looked up")


@dataclass
class Node:
    """With a podman, unless `program` is None."""

    directory: Path
    program: Path | None
    default: str = "process"
    classes: dict[str, str] = field(default_factory=lambda: {"boxed": "podman", "plain": "process", "kata": "kata"})
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.disk = NodeDirectory(self.directory / "node", traversable=False)
        self.disk.open("n")
        self.disk.close()
        self.metrics = AgentMetrics("n", "tree")
        self.drivers = self.made(self.look_up)

    def look_up(self, name: str) -> RuntimeClass | None:
        return RuntimeClass(handler=self.classes[name]) if name in self.classes else None

    def made(self, look_up: Callable[[str], RuntimeClass | None]) -> NodeDrivers:
        there = [ProcessDriver(a_policy(), None), *([self.podman()] if self.program else [])]
        return NodeDrivers(there, self.default, self.disk.pods, look_up, self.metrics, lambda: self.now)

    def podman(self) -> PodmanDriver:
        return PodmanDriver(PodmanClient(str(self.program)), a_policy(), self.disk.root, lambda: self.now)

    def pod(self, uid: str = "web") -> PodDirectory:
        found = self.disk.pod(uid)
        found.make()
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    found = Node(tmp_path, installed(tmp_path / "fake"))
    assert found.program is not None
    add_image(found.program, IMAGE)
    return found


@pytest.mark.row("N127")
def test_the_handler_of_its_runtime_class_names_a_pods_driver(node: Node) -> None:
    for runtime_class, name in (("boxed", "podman"), ("plain", "process")):
        assert node.drivers.choose(a_pod(runtime_class), node.pod(runtime_class)).name == name
    at_once = node.drivers.at_once(a_pod())
    assert at_once is not None and at_once.name == "process"
    assert node.drivers.at_once(a_pod("plain")) is None, "its class has to be asked for"
    node.default = "podman"
    by_podman = node.made(nobody_asks)
    assert by_podman.at_once(a_pod()) is None, "podman has to be asked how it is"
    assert by_podman.choose(a_pod(), node.pod("new")).name == "podman"


@pytest.mark.row("N127")
def test_a_driver_that_is_not_there_is_told_as_kubelet_tells_it(node: Node) -> None:
    node.program = None
    without = node.made(node.look_up)
    for runtime_class, message in (
        ("boxed", 'RuntimeClass "boxed": no runtime for "podman" is configured; this node has process'),
        ("kata", 'RuntimeClass "kata": no runtime for "kata" is configured; this node has process'),
        ("gone", 'failed to look up RuntimeClass "gone": runtimeclass.node.k8s.io "gone" not found'),
    ):
        with pytest.raises(ConfigurationFault) as found:
            without.choose(a_pod(runtime_class), node.pod())
        assert str(found.value) == message


def test_a_cluster_that_cannot_be_asked_is_told(node: Node) -> None:
    def fails(_: str) -> RuntimeClass | None:
        raise ApiError(grpc.StatusCode.UNAVAILABLE, "no replica answers")

    with pytest.raises(ConfigurationFault, match=r'failed to look up RuntimeClass "boxed": .*no replica answers'):
        node.made(fails).choose(a_pod("boxed"), node.pod())


@pytest.mark.row("N127")
def test_a_driver_that_is_not_in_order_makes_its_pods_wait_until_it_is(node: Node) -> None:
    assert node.program is not None
    broken = node.program.parent / "broken"
    broken.write_text("database is locked\n")
    with pytest.raises(ConfigurationFault, match='RuntimeClass "boxed": runtime "podman" is unhealthy: database is locked'):
        node.drivers.choose(a_pod("boxed"), node.pod())
    assert node.metrics.registry.get_sample_value("rayched_node_driver_healthy", {"driver": "podman"}) == 0
    broken.unlink()
    node.now += FINGERPRINT_SECONDS - 1
    with pytest.raises(ConfigurationFault):
        node.drivers.choose(a_pod("boxed"), node.pod())
    node.now += 1
    assert node.drivers.choose(a_pod("boxed"), node.pod()).name == "podman"
    assert node.metrics.registry.get_sample_value("rayched_node_driver_healthy", {"driver": "podman"}) == 1


@pytest.mark.row("N127")
def test_a_pod_keeps_the_driver_that_it_was_given(node: Node) -> None:
    assert node.drivers.choose(a_pod("boxed"), node.pod()).name == "podman"
    later = node.made(nobody_asks)
    assert later.recorded(node.pod()) == "podman"
    assert later.choose(a_pod("boxed"), node.pod()).name == "podman"
    node.pod("old").begin_attempt("main", 0)
    node.default = "podman"
    assert node.made(nobody_asks).choose(a_pod(), node.pod("old")).name == "process", "it began as a process"


@pytest.mark.row("N127")
def test_a_runtime_class_places_its_pods_where_its_driver_is() -> None:
    healthy, broken = DriverFingerprint(DriverHealth.HEALTHY, "1"), DriverFingerprint(DriverHealth.UNHEALTHY, text="no")
    labels = {
        "with": driver_labels({"process": healthy, "podman": healthy}),
        "without": driver_labels({"process": healthy}),
        "broken": driver_labels({"process": healthy, "podman": broken}),
    }
    assert labels["without"] == {"rayched.dev/driver.process": "true", "rayched.dev/driver.podman": "false"}
    boxed = RuntimeClass(metadata={"name": "boxed"}, handler="podman")
    boxed.scheduling.node_selector["rayched.dev/driver.podman"] = "true"
    cluster = InProcessCluster([boxed, *(a_node(name, labels=found) for name, found in labels.items())])
    for number in range(3):
        pod = a_test_pod(f"pod-{number}")
        pod.spec.runtime_class_name = "boxed"
        cluster.place(pod).assert_on(f"pod-{number}", "with")


# ------------------------------------------------------------------------------------------------------------------- images


@dataclass
class Preparing:
    """An attempt of a container with `policy` for its image."""

    node: Node
    image: str = IMAGE
    policy: str = "IfNotPresent"
    uid: str = "web"

    def __post_init__(self) -> None:
        self.driver = self.node.podman()

    def prepare(self, is_cancelled: Callable[[], bool] = lambda: False, no_root: bool = False) -> list[str]:
        """What is told of it."""
        pod = a_pod(image=self.image)
        pod.metadata.uid = self.uid
        container: Container = pod.spec.containers[0]
        container.image_pull_policy = self.policy
        container.security_context.run_as_non_root = no_root
        spec = {**self.driver.specify(pod, container, AttemptPlace("n", "10.0.0.1", 2, "/work", "/log")), "oom_score_adj": 0}
        directory = self.node.pod(self.uid).begin_attempt("main", 2)
        events = self.driver.prepare(spec, directory, is_cancelled)
        assert not (directory / "environment").exists(), "what may be secret stays no longer than it is needed"
        return [event.message for event in events]

    def refused(self) -> tuple[str, str]:
        with pytest.raises(DriverFault) as found:
            self.prepare()
        return found.value.reason, str(found.value)


def test_an_image_is_fetched_as_its_policy_says(node: Node) -> None:
    assert node.program is not None
    assert Preparing(node).prepare() == [f'Container image "{IMAGE}" already present on machine']
    assert Preparing(node, "new:1", "Never").refused() == (
        "ErrImageNeverPull",
        'Container image "new:1" is not present with pull policy of Never',
    )
    (node.program.parent / "registry").write_text(f"new:1\n{IMAGE}\n")
    for image, policy in (("new:1", "IfNotPresent"), (IMAGE, "Always")):
        assert Preparing(node, image, policy).prepare() == [f'Successfully pulled image "{image}" in 0.000s']
    assert sum(call[0] == "pull" for call in calls(node.program)) == 2


def test_an_image_that_cannot_be_fetched_is_tried_again_after_a_pause_that_grows(node: Node) -> None:
    assert node.program is not None
    preparing = Preparing(node, "no:1")
    fault = 'Failed to pull image "no:1": initializing source docker://no:1: reading manifest: manifest unknown'
    for pause in (10, 20, 40, 80, 160, 300, 300):
        assert preparing.refused() == ("ErrImagePull", fault)
        node.now += pause - 0.1
        assert preparing.refused() == ("ImagePullBackOff", 'Back-off pulling image "no:1"')
        node.now += 0.2
    (node.program.parent / "registry").write_text("no:1\n")
    preparing.prepare()
    (node.program.parent / "images").write_text("")
    (node.program.parent / "registry").write_text("")
    assert preparing.refused()[0] == "ErrImagePull", "what went well begins anew"


def test_an_image_that_comes_slowly_is_given_up_when_its_pod_ends(node: Node) -> None:
    assert node.program is not None
    (node.program.parent / "slow").write_text("1000")
    ends, preparing, found = threading.Event(), Preparing(node, "new:1"), list[str]()

    def prepare() -> None:
        with pytest.raises(DriverFault) as fault:
            preparing.prepare(ends.is_set)
        found.append(str(fault.value))

    thread = threading.Thread(target=prepare)
    thread.start()
    while not any(call[0] == "pull" for call in calls(node.program)):
        time.sleep(0.01)
    ends.set()
    thread.join(30.0)
    assert found == ["the pod ended before its container was made"]


@pytest.mark.parametrize(
    ("user", "fault"),
    [
        ("1000", ""),
        ("1000:0", ""),
        ("", "container has runAsNonRoot and image will run as root"),
        ("0:7", "container has runAsNonRoot and image will run as root"),
        ("web", "container has runAsNonRoot and image has non-numeric user (web), cannot verify user is non-root"),
    ],
)
def test_who_may_not_be_root_is_not_made_root_by_an_image(node: Node, user: str, fault: str) -> None:
    assert node.program is not None
    add_image(node.program, "other:1", user)
    preparing = Preparing(node, "other:1")
    if not fault:
        assert preparing.prepare(no_root=True)
        return
    with pytest.raises(DriverFault) as found:
        preparing.prepare(no_root=True)
    assert (found.value.reason, str(found.value)) == ("CreateContainerConfigError", fault)


def test_what_is_left_of_pods_that_are_gone_is_removed_and_of_others_nothing(node: Node, tmp_path: Path) -> None:
    assert node.program is not None
    driver = node.podman()
    Preparing(node).prepare()
    other = Node(tmp_path / "other", node.program)
    Preparing(other, uid="others").prepare()
    containers = node.program.parent / "containers"
    assert driver.collect({"web"}) == 0
    assert driver.collect({"somebody"}) == 1
    assert [path.stem for path in containers.iterdir()] == ["rayched_others_main_2"], "another node's stays"
    assert other.podman().collect(()) == 1
    assert not list(containers.iterdir())


def test_a_podman_that_is_not_there_is_undetected(tmp_path: Path) -> None:
    found = PodmanDriver(PodmanClient(str(tmp_path / "none")), a_policy(), tmp_path).fingerprint()
    assert found.health is DriverHealth.UNDETECTED and "No such file" in found.text
