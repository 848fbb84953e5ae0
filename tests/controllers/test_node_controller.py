"""The leader's care for nodes, with a real etcd, a real API and hollow nodes as agents. Periods are short; pods name their node.

Times in objects are whole seconds, so what lasts two seconds may last up to three.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pytest

from leader.channel import open_channel
from rayched.client import ApiError, Client
from rayched.controllers.budgets import BudgetStatus
from rayched.controllers.node_controller import NodeController
from rayched.controllers.node_settings import NodeSettings
from rayched.nodes.hollow import HollowNodes
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys
from rayched.store.refusals import FENCED_WRITES
from rayched.v1.core_pb2 import Node, NodeStatus, Pod, Taint
from rayched.v1.workloads_pb2 import PodDisruptionBudget
from tests.patience import patient_store
from tests.server.serving import serving

pytestmark = pytest.mark.cluster

PREFIX = "node.kubernetes.io/"
QUICK = NodeSettings(
    node_monitor_period=0.1,
    node_monitor_grace_period=0.6,
    node_startup_grace_period=0.6,
    node_eviction_rate=100,
    orphan_quarantine=0.5,
    termination_margin=0.5,
)
HEARTBEAT_SECONDS = 0.15
PATIENCE_SECONDS = 60.0
LOST = {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}

_numbers = itertools.count(1)


@dataclass
class World:
    """A cluster without a scheduler."""

    client: Client
    store: StoreClient
    keys: Keys
    endpoint: str
    epoch: int | None = None

    def new_epoch(self) -> None:
        self.epoch = self.store.put(self.keys.epoch, b"{}")

    @contextmanager
    def leader(self, settings: NodeSettings = QUICK) -> Iterator[NodeController]:
        if self.epoch is None:
            self.new_epoch()
        controller = NodeController([self.endpoint], self.keys, settings, lambda: self.epoch)
        controller.start()
        try:
            yield controller
        finally:
            controller.stop()

    @contextmanager
    def agents(self, count: int = 2, zones: int = 1, stop_seconds: float = 0.0) -> Iterator[HollowNodes]:
        shape = NodeShape({"cpu": "16", "memory": "32Gi", "pods": "50"})
        nodes = hollow_nodes(count, zones, shape)
        agents = HollowNodes(self.client, nodes, heartbeat_seconds=HEARTBEAT_SECONDS, stop_seconds=stop_seconds)
        agents.register()
        agents.start()
        try:
            yield agents
        finally:
            agents.stop()

    def node(self, name: str) -> Node:
        found = self.client.get("nodes", name)
        assert isinstance(found, Node)
        return found

    def taints(self, name: str) -> set[tuple[str, str]]:
        return {(taint.key.removeprefix(PREFIX), taint.effect) for taint in self.node(name).spec.taints}

    def conditions(self, name: str) -> dict[str, str]:
        return {one.type: one.status for one in self.node(name).status.conditions}

    def run(self, name: str, node: str, tolerated_seconds: int = 300, grace: int = 0) -> None:
        """A pod that runs on the node, and for so long also when it is lost."""
        pod = Pod()
        pod.metadata.name = name
        pod.spec.node_name = node
        pod.spec.termination_grace_period_seconds = grace
        pod.spec.containers.add(name="main", image="web:1")
        for key in ("not-ready", "unreachable"):
            pod.spec.tolerations.add(
                key=PREFIX + key, operator="Exists", effect="NoExecute", toleration_seconds=tolerated_seconds
            )
        self.client.submit(pod)
        until(lambda: self.phase(name) == "Running", f"{name} does not run")

    def pod(self, name: str) -> Pod | None:
        try:
            found = self.client.get("pods", name)
        except ApiError as error:
            assert error.code.name == "NOT_FOUND", error
            return None
        assert isinstance(found, Pod)
        return found

    def phase(self, name: str) -> str:
        found = self.pod(name)
        return found.status.phase if found is not None else "gone"

    def runs(self, name: str) -> bool:
        return self.phase(name) == "Running"

    def is_ready(self, name: str) -> bool:
        found = self.pod(name)
        return found is not None and any(one.type == "Ready" and one.status == "True" for one in found.status.conditions)

    def healthy_in_budget(self, name: str) -> int | None:
        """None while nobody has counted."""
        found = self.client.get("poddisruptionbudgets", name)
        assert isinstance(found, PodDisruptionBudget)
        return found.status.current_healthy if found.status.observed_generation else None


@pytest.fixture
def world(etcd: EtcdServer, etcd_root: str) -> Iterator[World]:
    keys = Keys(etcd_root)
    with (
        serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], keys)) as server,
        Client(server.address, timeout_seconds=10.0) as client,
        open_channel([etcd.endpoint]) as channel,
    ):
        yield World(client, patient_store(channel), keys, etcd.endpoint)


def until(holds: Callable[[], bool], failure: str, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, failure
        time.sleep(0.02)


# ---------------------------------------------------------------------------------------------------------- lost nodes


@pytest.mark.row("K5.4", "K5.5", "K9.9")
def test_a_node_that_falls_silent_is_tainted_and_its_pods_go_when_their_time_is_over(world: World) -> None:
    with world.agents() as agents, world.leader():
        world.run("brief", "node-000", tolerated_seconds=1, grace=1)
        world.run("patient", "node-000", tolerated_seconds=60)
        world.run("elsewhere", "node-001", tolerated_seconds=0)
        agents.silence(["node-000"])
        until(lambda: world.taints("node-000") == LOST, "the silent node has not got its taints")
        since = {taint.time_added.seconds for taint in world.node("node-000").spec.taints if taint.effect == "NoExecute"}
        assert world.conditions("node-000")["Ready"] == "Unknown"
        until(lambda: not world.is_ready("brief"), "a pod of a lost node is still ready")
        until(lambda: (pod := world.pod("brief")) is None or pod.metadata.HasField("deletion_timestamp"), "brief stays")
        assert time.time() >= since.pop() + 1
        # Nobody stops it there, so the leader removes it.
        until(lambda: world.phase("brief") == "gone", "nobody removed the pod of the lost node")
        assert world.phase("patient") == "Running"
        assert world.is_ready("elsewhere")
        assert world.taints("node-001") == set()


@pytest.mark.row("K5.4")
def test_a_node_that_comes_back_loses_the_taints_and_keeps_its_pods(world: World) -> None:
    with world.agents() as agents, world.leader():
        world.run("web", "node-000", tolerated_seconds=2)
        agents.silence(["node-000"])
        until(lambda: world.taints("node-000") == LOST, "the silent node has not got its taints")
        agents.speak(["node-000"])
        until(lambda: world.taints("node-000") == set(), "the node is back and still tainted")
        until(lambda: world.is_ready("web"), "the pod of a node that is back is not ready")
        time.sleep(3.2)
        found = world.pod("web")
        assert found is not None
        assert not found.metadata.HasField("deletion_timestamp")
        assert world.conditions("node-000")["Ready"] == "True"


def test_a_zone_that_is_mostly_lost_is_not_emptied_and_one_lost_node_of_another_is(world: World) -> None:
    slow = replace(QUICK, node_eviction_rate=0.01)
    with world.agents(8, 2) as agents, world.leader(slow):
        lost = ["node-000", "node-002", "node-004", "node-001", "node-003"]
        agents.silence(lost)
        until(lambda: all(("unreachable", "NoSchedule") in world.taints(name) for name in lost), "not all are unreachable")
        time.sleep(1.0)
        emptied = {name for name in lost if ("unreachable", "NoExecute") in world.taints(name)}
        # Three of four nodes of zone-a: none of them. Two of four of zone-b: the first at once, the next 100 s later.
        assert len(emptied) == 1
        assert emptied < {"node-001", "node-003"}


def test_when_all_nodes_fall_silent_at_once_nothing_is_evicted(world: World) -> None:
    with world.agents() as agents, world.leader():
        world.run("web", "node-000", tolerated_seconds=0)
        agents.silence(["node-000", "node-001"])
        until(lambda: ("unreachable", "NoSchedule") in world.taints("node-000"), "the node is not even unreachable")
        time.sleep(0.5)
        assert world.taints("node-000") == {("unreachable", "NoSchedule")}
        assert world.phase("web") == "Running"


def test_a_leader_whose_epoch_is_over_taints_and_evicts_nothing(world: World) -> None:
    with world.agents() as agents, world.leader():
        world.run("web", "node-000", tolerated_seconds=0)
        world.store.put(world.keys.epoch, b"{}")
        agents.silence(["node-000"])
        time.sleep(1.5)
        assert world.taints("node-000") == set()
        assert world.phase("web") == "Running"


def test_a_node_without_any_agent_is_unreachable_after_the_time_of_starting(world: World) -> None:
    node = Node()
    node.metadata.name = "bare"
    with world.agents(1), world.leader():
        world.client.submit(node)
        until(lambda: world.taints("bare") == LOST, "nobody has missed the agent")


# ------------------------------------------------------------------------------------------ taints, conditions, deletion


@pytest.mark.row("K5.5", "K5.6")
def test_what_an_agent_or_an_administrator_says_of_a_node_becomes_a_taint_and_ceases_to_be_one(world: World) -> None:
    with world.agents(1), world.leader():
        pressed = NodeStatus()
        pressed.conditions.add(type="MemoryPressure", status="True")
        world.client.update_node_status("node-000", pressed)
        world.client.cordon("node-000", True)
        both = {("memory-pressure", "NoSchedule"), ("unschedulable", "NoSchedule")}
        until(lambda: world.taints("node-000") == both, "no taints for the conditions")
        pressed.conditions[0].status = "False"
        world.client.update_node_status("node-000", pressed)
        world.client.cordon("node-000", False)
        until(lambda: world.taints("node-000") == set(), "the taints stay")


@pytest.mark.row("K5.4")
def test_a_taint_of_an_administrator_evicts_who_does_not_tolerate_it_and_its_removal_spares_the_others(world: World) -> None:
    with world.agents(1), world.leader():
        world.run("web", "node-000", grace=600)
        for name, seconds in (("short", 1), ("long", 2)):
            pod = Pod()
            pod.metadata.name, pod.spec.node_name = name, "node-000"
            pod.spec.containers.add(name="main", image="web:1")
            pod.spec.tolerations.add(key="repair", operator="Exists", effect="NoExecute", toleration_seconds=seconds)
            world.client.submit(pod)
            until(partial(world.runs, name), "the pod does not run")
        world.client.taint("node-000", add=[Taint(key="repair", effect="NoExecute")])
        until(lambda: world.phase("web") == "gone", "a pod that tolerates nothing stays", 2.0)
        until(lambda: world.phase("short") == "gone", "a pod stays for longer than it tolerates")
        world.client.taint("node-000", remove=[Taint(key="repair")])
        time.sleep(2.0)
        assert world.phase("long") == "Running"


@pytest.mark.row("K9.9")
def test_what_does_not_stop_in_time_is_removed_by_force_and_not_before(world: World) -> None:
    with world.agents(1, stop_seconds=600), world.leader():
        world.run("stubborn", "node-000", grace=1)
        asked_at = time.time()
        world.client.delete("pods", "stubborn")
        until(lambda: world.phase("stubborn") == "gone", "the pod stays for ever")
        assert time.time() >= int(asked_at) + 1 + QUICK.termination_margin


@pytest.mark.row("K9.9")
def test_pods_of_a_node_that_was_deleted_fail_and_go(world: World) -> None:
    with world.agents(2) as agents, world.leader():
        world.run("running", "node-000", grace=600)
        world.run("ending", "node-000", grace=600)
        agents.stop()
        world.client.delete("pods", "ending")
        with world.client.watch("pods", field_selector="metadata.name=running") as stream:
            world.client.delete("nodes", "node-000")
            seen = [event.object for event in itertools.islice(stream, 3)]
        until(lambda: {world.phase("running"), world.phase("ending")} == {"gone"}, "pods of a deleted node stay")
        last = seen[-1]
        assert isinstance(last, Pod)
        assert last.status.phase == "Failed"
        assert [one.reason for one in last.status.conditions if one.type == "DisruptionTarget"] == ["DeletionByPodGC"]


# ------------------------------------------------------------------------------------- voluntary and involuntary disruption


@pytest.mark.row("K11.6")
def test_a_budget_refuses_who_may_be_refused_and_a_lost_node_is_not(world: World) -> None:
    budget = PodDisruptionBudget()
    budget.metadata.name = "web"
    budget.spec.max_unavailable.int_value = 0
    budget.spec.selector.match_labels["app"] = "web"
    budgets = BudgetStatus([world.endpoint], world.keys, lambda: world.epoch)
    with world.agents() as agents, world.leader():
        budgets.start()
        try:
            world.run("web", "node-000", tolerated_seconds=1, grace=1)
            world.client.label("pods", "web", add={"app": "web"})
            world.client.submit(budget)
            until(lambda: world.healthy_in_budget("web") == 1, "the budget does not count the pod")
            with pytest.raises(ApiError) as caught:
                world.client.evict("web")
            assert caught.value.code.name == "RESOURCE_EXHAUSTED"
            agents.silence(["node-000"])
            # Involuntary: it counts against the budget, and is not asked.
            until(lambda: world.healthy_in_budget("web") == 0, "the budget still counts a pod of a lost node as healthy")
            until(lambda: world.phase("web") == "gone", "the budget keeps a pod on a lost node")
        finally:
            budgets.stop()


# ------------------------------------------------------------------------------------------------------------- a new leader


def test_nothing_is_written_before_the_watch_has_seen_the_own_epoch(world: World) -> None:
    world.epoch = world.store.put(world.keys.epoch, b"{}") + 1_000_000
    node = Node()
    node.metadata.name = "cordoned"
    node.spec.unschedulable = True
    world.client.submit(node)
    refused = FENCED_WRITES.labels("nodes")._value.get()
    with world.leader() as controller:
        until(lambda: controller._led is not None and controller._led.care.view.complete, "the objects are not read")
        turn = controller._next_reading
        until(lambda: controller._next_reading > turn + QUICK.node_monitor_period, "nothing goes on")
        assert FENCED_WRITES.labels("nodes")._value.get() == refused
        world.new_epoch()
        until(lambda: ("unschedulable", "NoSchedule") in world.taints("cordoned"), "it does not begin under its epoch")
