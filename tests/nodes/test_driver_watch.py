"""What an agent sees to of its drivers while no pod asks: how the default one is, images, what is left of pods that are gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayched.nodes.agent.drivers.node_drivers import FINGERPRINT_SECONDS
from rayched.nodes.agent.node_report import NodeReport
from rayched.v1.core_pb2 import ContainerImage, Node, NodeStatus
from tests.nodes.driven_pod import IMAGE
from tests.nodes.fake_podman import add_image, calls
from tests.nodes.test_node_drivers import Node as DriverNode
from tests.nodes.test_node_drivers import Preparing, a_pod, installed, nobody_asks


@pytest.fixture
def node(tmp_path: Path) -> DriverNode:
    found = DriverNode(tmp_path, installed(tmp_path / "fake"))
    assert found.program is not None
    add_image(found.program, IMAGE)
    return found


def images_there(node: DriverNode) -> set[str]:
    assert node.program is not None
    return {line.split()[0] for line in (node.program.parent / "images").read_text().splitlines()}


def test_the_default_driver_alone_is_the_nodes_fault(node: DriverNode) -> None:
    assert node.program is not None
    broken = node.program.parent / "broken"
    broken.write_text("database is locked\n")
    assert node.drivers.look().fault == "", "podman is another one here, and nobody's"
    assert calls(node.program) == [], "it is not even asked"
    node.default = "podman"
    drivers = node.made(nobody_asks)
    assert drivers.look().fault == "driver podman is unhealthy: database is locked"
    broken.unlink()
    node.now += FINGERPRINT_SECONDS
    assert drivers.look().fault == ""


def test_what_is_left_of_pods_that_are_gone_is_removed_though_no_pod_asks(node: DriverNode) -> None:
    assert node.program is not None
    containers = node.program.parent / "containers"
    assert node.drivers.choose(a_pod("boxed"), node.pod()).name == "podman"
    Preparing(node).prepare()
    node.now += FINGERPRINT_SECONDS
    node.drivers.look()
    assert len(list(containers.iterdir())) == 1, "its pod is there"
    node.pod().remove()
    node.now += FINGERPRINT_SECONDS
    node.drivers.look()
    assert not list(containers.iterdir())


def test_an_agent_that_begins_looks_after_the_drivers_that_its_pods_have(node: DriverNode) -> None:
    assert node.drivers.choose(a_pod("boxed"), node.pod()).name == "podman"
    later = node.made(nobody_asks)
    assert later.look().images == [], "nobody has said yet that anything is podman's"
    later.recorded(node.pod())
    assert [one.names[0] for one in later.look().images] == [IMAGE]


def test_images_that_this_agent_had_fetched_go_when_nobody_uses_them_and_others_stay(node: DriverNode) -> None:
    assert node.program is not None
    (node.program.parent / "registry").write_text(f"used:1\nunused:1\n{IMAGE}\n")
    Preparing(node, IMAGE, "Always", uid="older").prepare()
    for uid, image in (("web", "used:1"), ("gone", "unused:1")):
        assert node.drivers.choose(a_pod("boxed"), node.pod(uid)).name == "podman"
        Preparing(node, image, uid=uid).prepare()
    assert images_there(node) == {IMAGE, "used:1", "unused:1"}
    node.podman().collect({"web"})
    again = node.made(nobody_asks)
    again.recorded(node.pod())
    assert again.remove_unused_images() == 1, "an agent that begins anew knows what the one before had fetched"
    assert images_there(node) == {IMAGE, "used:1"}
    node.podman().collect(())
    assert again.remove_unused_images() == 0, "just now it was done"
    node.now += FINGERPRINT_SECONDS
    assert again.remove_unused_images() == 1
    assert images_there(node) == {IMAGE}, "what somebody else has brought is his"


def test_an_image_that_somebody_has_removed_is_forgotten(node: DriverNode) -> None:
    assert node.program is not None
    (node.program.parent / "registry").write_text("new:1\n")
    Preparing(node, "new:1").prepare()
    (node.program.parent / "images").write_text("new:1\n")
    driver = node.podman()
    (node.program.parent / "images").write_text("")
    driver.collect(())
    assert driver.remove_unused_images() == 0
    add_image(node.program, "new:1")
    assert driver.remove_unused_images() == 0 and images_there(node) == {"new:1"}, "it is somebody else's now"


def test_the_largest_images_are_told_with_the_nodes_status() -> None:
    told: list[NodeStatus] = []
    report = NodeReport(Node(metadata={"name": "n"}), told.append, lambda _: None)
    report.turn(0.0, may_tell=True)
    report.has_images([ContainerImage(names=[f"image-{number}"], size_bytes=number) for number in range(60)])
    report.turn(10.0, may_tell=True)
    report.turn(20.0, may_tell=True)
    assert [[one.size_bytes for one in status.images] for status in told] == [[], list(range(59, 9, -1))]
