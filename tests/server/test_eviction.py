"""Evictions over a real etcd: what budgets allow, refuse and never grant twice, with the statuses kept by the leader's loop."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from leader.channel import open_channel
from rayched.client import ApiError, Client
from rayched.controllers.budgets import BudgetStatus
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Pod, PodStatus
from rayched.v1.services_pb2 import PodStatusUpdate
from rayched.v1.workloads_pb2 import PodDisruptionBudget, ReplicaSet
from tests.patience import patient_store
from tests.server.objects import a_namespace, a_pod
from tests.server.serving import Serving, serving, until

pytestmark = pytest.mark.cluster

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def budgets(etcd: EtcdServer, keys: Keys) -> Iterator[None]:
    """The loop that keeps statuses, under an epoch."""
    with open_channel([etcd.endpoint]) as channel:
        epoch = patient_store(channel).put(keys.epoch, b"{}")
    loop = BudgetStatus([etcd.endpoint], keys, lambda: epoch)
    loop.start()
    yield
    loop.stop()


@pytest.fixture
def namespace(client: Client, budgets: None) -> str:
    name = f"space-{next(_numbers)}"
    client.submit(a_namespace(name))
    return name


def running(client: Client, namespace: str, count: int, *, ready: bool = True, prefix: str = "web", owner: str = "") -> list[Pod]:
    """Pods on a node, with a status as its agent reports it."""
    updates = []
    for number in range(count):
        pod = a_pod(f"{prefix}-{number}", namespace=namespace, labels={"app": prefix}, node="node-1")
        if owner:
            pod.metadata.owner_references.add(
                api_version="apps/v1", kind="ReplicaSet", name=owner, uid=f"{namespace}-{owner}", controller=True
            )
        uid = client.submit(pod).uid
        status = PodStatus(phase="Running")
        status.conditions.add(type="Ready", status="True" if ready else "False")
        updates.append(PodStatusUpdate(namespace=namespace, name=pod.metadata.name, uid=uid, status=status))
    assert client.update_pod_statuses(updates) == (None,) * count
    return [pod_of(client, update.name, namespace) for update in updates]


def pod_of(client: Client, name: str, namespace: str) -> Pod:
    found = client.get("pods", name, namespace)
    assert isinstance(found, Pod)
    return found


def budget_of(client: Client, name: str, namespace: str) -> PodDisruptionBudget:
    found = client.get("pdb", name, namespace)
    assert isinstance(found, PodDisruptionBudget)
    return found


def a_budget(
    name: str, namespace: str, least: int | None = None, most: int | None = None, app: str = "web"
) -> PodDisruptionBudget:
    budget = PodDisruptionBudget()
    budget.metadata.name, budget.metadata.namespace = name, namespace
    budget.spec.selector.match_labels["app"] = app
    if least is not None:
        budget.spec.min_available.int_value = least
    if most is not None:
        budget.spec.max_unavailable.int_value = most
    return budget


def observed(client: Client, name: str, namespace: str, allowed: int) -> None:
    """Waits until the budget's status says so about its present spec."""

    def holds() -> bool:
        budget = budget_of(client, name, namespace)
        status = budget.status
        return (status.observed_generation, status.disruptions_allowed) == (budget.metadata.generation, allowed)

    until(holds)


def refusal(client: Client, name: str, namespace: str, **options: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        client.evict(name, namespace, **options)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.row("K11.1", "K11.3")
def test_without_a_budget_a_pod_is_evicted_with_its_own_grace(client: Client, namespace: str) -> None:
    (pod,) = running(client, namespace, 1)
    answer = client.evict("web-0", namespace)
    found = pod_of(client, "web-0", namespace)
    assert answer.pod == found
    assert answer.budget == ""
    assert found.metadata.deletion_grace_period_seconds == 30
    (condition,) = [one for one in found.status.conditions if one.type == "DisruptionTarget"]
    assert (condition.status, condition.reason) == ("True", "EvictionByEvictionAPI")
    # Again does no harm, and changes nothing.
    assert client.evict("web-0", namespace).pod == found
    # A shorter grace is heard.
    client.evict("web-0", namespace, grace_period_seconds=5)
    assert pod_of(client, "web-0", namespace).metadata.deletion_grace_period_seconds == 5
    assert pod.metadata.uid == found.metadata.uid


@pytest.mark.row("K11.2")
def test_a_budget_allows_then_refuses_with_a_time_to_try_again(client: Client, namespace: str) -> None:
    running(client, namespace, 3)
    client.submit(a_budget("web", namespace, least=2))
    observed(client, "web", namespace, 1)
    assert client.evict("web-0", namespace).budget == "web"
    refused = refusal(client, "web-1", namespace)
    assert (refused.code.name, refused.budget, refused.retry_after_seconds) == ("RESOURCE_EXHAUSTED", "web", 1.0)
    assert refused.message == (
        f"Pod {namespace}/web-1: cannot be evicted now, it would violate its disruption budget: "
        "PodDisruptionBudget web needs 2 healthy pods and has 2 currently"
    )
    assert not pod_of(client, "web-1", namespace).metadata.HasField("deletion_timestamp")
    # A pod in its place: there is a disruption again.
    running(client, namespace, 1, prefix="other")
    more = a_pod("web-9", namespace=namespace, labels={"app": "web"}, node="node-1")
    status = PodStatus(phase="Running")
    status.conditions.add(type="Ready", status="True")
    update = PodStatusUpdate(namespace=namespace, name="web-9", uid=client.submit(more).uid, status=status)
    client.update_pod_statuses([update])
    observed(client, "web", namespace, 1)
    client.evict("web-1", namespace)


def test_the_transaction_of_an_eviction_is_one_revision_of_pod_and_budget(client: Client, namespace: str) -> None:
    running(client, namespace, 3)
    client.submit(a_budget("web", namespace, least=1))
    observed(client, "web", namespace, 2)
    start = client.list_all("pdb", namespace=namespace).revision + 1
    answer = client.evict("web-2", namespace)
    with client.watch(None, namespace=namespace, start_revision=start) as stream:
        events = [next(stream), next(stream)]
    by_kind = {type(event.object): event for event in events}
    assert {event.revision for event in events} == {answer.revision}
    budget = by_kind[PodDisruptionBudget].object
    assert isinstance(budget, PodDisruptionBudget)
    assert (budget.status.disruptions_allowed, list(budget.status.disrupted_pods)) == (1, ["web-2"])
    assert by_kind[Pod].object.metadata.HasField("deletion_timestamp")
    # The status follows what the pods are: the deletion is seen, so the entry is not needed any more.
    until(lambda: not budget_of(client, "web", namespace).status.disrupted_pods)
    assert budget_of(client, "web", namespace).status.disruptions_allowed == 1


@pytest.mark.row("K11.2")
def test_several_budgets_on_one_pod_are_a_misconfiguration(client: Client, namespace: str) -> None:
    running(client, namespace, 2)
    client.submit(a_budget("one", namespace, least=0))
    client.submit(a_budget("two", namespace, least=0))
    refused = refusal(client, "web-0", namespace)
    assert refused.code.name == "FAILED_PRECONDITION"
    assert refused.message == (
        f"Pod {namespace}/web-0: has more than one PodDisruptionBudget (one, two); eviction needs one at most"
    )


def test_a_budget_without_a_status_for_its_spec_allows_nothing_yet(etcd: EtcdServer) -> None:
    lonely = Keys(f"/eviction-{next(_numbers)}")
    with serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], lonely)) as server, Client(server.address) as client:
        running(client, "default", 2)
        client.submit(a_budget("web", "default", least=0))
        refused = refusal(client, "web-0", "default")
        assert (refused.code.name, refused.retry_after_seconds) == ("RESOURCE_EXHAUSTED", 0.5)
        assert "does not say anything about its present spec yet" in refused.message


def test_a_dry_run_judges_and_changes_nothing(client: Client, namespace: str) -> None:
    running(client, namespace, 3)
    client.submit(a_budget("web", namespace, least=2))
    observed(client, "web", namespace, 1)
    before = client.list_all("pods", namespace=namespace).objects, budget_of(client, "web", namespace)
    for number in range(3):
        assert client.evict(f"web-{number}", namespace, dry_run=True).pod.metadata.HasField("deletion_timestamp")
    assert (client.list_all("pods", namespace=namespace).objects, budget_of(client, "web", namespace)) == before
    client.apply(a_budget("web", namespace, least=3))
    observed(client, "web", namespace, 0)
    assert refusal(client, "web-0", namespace, dry_run=True).code.name == "RESOURCE_EXHAUSTED"


def test_preconditions_and_wrong_requests_are_refused(client: Client, namespace: str) -> None:
    (pod,) = running(client, namespace, 1)
    table = {
        "ABORTED": [{"uid": "of-another"}, {"resource_version": "1"}],
        "INVALID_ARGUMENT": [{"grace_period_seconds": -1}],
    }
    for code, requests in table.items():
        for options in requests:
            assert refusal(client, "web-0", namespace, **options).code.name == code
    assert refusal(client, "none-such", namespace).code.name == "NOT_FOUND"
    assert refusal(client, "", namespace).code.name == "INVALID_ARGUMENT"
    assert pod_of(client, "web-0", namespace) == pod
    client.evict("web-0", namespace, uid=pod.metadata.uid, resource_version=pod.metadata.resource_version)


def test_pods_that_wait_or_have_ended_go_whatever_the_budget(client: Client, namespace: str) -> None:
    client.submit(a_budget("web", namespace, least=5))
    client.submit(a_pod("waits", namespace=namespace, labels={"app": "web"}))
    (pod,) = running(client, namespace, 1)
    ended = PodStatusUpdate(namespace=namespace, name="web-0", uid=pod.metadata.uid, status=PodStatus(phase="Failed"))
    assert client.update_pod_statuses([ended]) == (None,)
    for name in ("waits", "web-0"):
        client.evict(name, namespace)
    assert [one.metadata.name for one in client.list("pods", namespace=namespace)] == []


def test_grace_0_removes_the_pod_and_still_takes_from_the_budget(client: Client, namespace: str) -> None:
    running(client, namespace, 2)
    client.submit(a_budget("web", namespace, least=1))
    observed(client, "web", namespace, 1)
    client.evict("web-0", namespace, grace_period_seconds=0)
    assert [one.metadata.name for one in client.list("pods", namespace=namespace)] == ["web-1"]
    assert refusal(client, "web-1", namespace, grace_period_seconds=0).code.name == "RESOURCE_EXHAUSTED"


def test_unhealthy_pods_go_as_the_policy_says_and_take_nothing(client: Client, namespace: str) -> None:
    running(client, namespace, 2)
    client.submit(a_budget("web", namespace, least=2))
    running(client, namespace, 1, ready=False, prefix="sick")
    client.submit(a_budget("sick", namespace, least=1, app="sick"))
    observed(client, "web", namespace, 0)
    observed(client, "sick", namespace, 0)
    assert refusal(client, "sick-0", namespace).code.name == "RESOURCE_EXHAUSTED"
    lenient = a_budget("sick", namespace, least=1, app="sick")
    lenient.spec.unhealthy_pod_eviction_policy = "AlwaysAllow"
    client.apply(lenient)
    assert client.evict("sick-0", namespace).budget == "sick"
    assert list(budget_of(client, "sick", namespace).status.disrupted_pods) == []


def test_max_unavailable_is_of_the_controllers_scale(client: Client, namespace: str) -> None:
    owner = ReplicaSet(api_version="apps/v1", kind="ReplicaSet")
    owner.metadata.name, owner.metadata.namespace, owner.metadata.uid = "web", namespace, f"{namespace}-web"
    owner.spec.replicas = 4
    owner.spec.selector.match_labels["app"] = "web"
    client.submit(owner)
    running(client, namespace, 3, owner="web")
    client.submit(a_budget("web", namespace, most=1))
    observed(client, "web", namespace, 0)
    status = budget_of(client, "web", namespace).status
    assert (status.expected_pods, status.desired_healthy, status.current_healthy) == (4, 3, 3)
    owner.spec.replicas = 3
    client.apply(owner)
    observed(client, "web", namespace, 1)
    client.delete("replicasets", "web", namespace)
    until(lambda: budget_of(client, "web", namespace).status.conditions[0].reason == "SyncFailed")
    assert "which is not there" in refusal(client, "web-0", namespace).message


def test_a_hundred_evictions_at_once_under_one_budget_all_go(client: Client, namespace: str) -> None:
    running(client, namespace, 100)
    client.submit(a_budget("web", namespace, least=20))
    observed(client, "web", namespace, 80)

    def evict(number: int) -> str:
        try:
            return client.evict(f"web-{number}", namespace).budget
        except ApiError as error:
            return error.code.name

    with ThreadPoolExecutor(100) as pool:
        outcomes = list(pool.map(evict, range(100)))
    assert (outcomes.count("web"), outcomes.count("RESOURCE_EXHAUSTED")) == (80, 20)


@pytest.mark.row("K11.6")
def test_a_deletion_asks_no_budget_and_counts_in_it(client: Client, namespace: str) -> None:
    running(client, namespace, 3)
    client.submit(a_budget("web", namespace, least=2))
    observed(client, "web", namespace, 1)
    client.delete("pods", "web-0", namespace)
    observed(client, "web", namespace, 0)
    assert refusal(client, "web-1", namespace).code.name == "RESOURCE_EXHAUSTED"
    client.delete("pods", "web-1", namespace)
    until(lambda: budget_of(client, "web", namespace).status.current_healthy == 1)
    found = pod_of(client, "web-1", namespace)
    assert not [one for one in found.status.conditions if one.type == "DisruptionTarget"]


@pytest.mark.row("K11.5")
def test_three_replicas_never_grant_a_disruption_twice(etcd: EtcdServer, keys: Keys, api: Serving, namespace: str) -> None:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], keys)
    with serving(options, "replica-1") as second, serving(options, "replica-2") as third:
        clients = [Client(server.address) for server in (api, second, third)]
        running(clients[0], namespace, 30)
        clients[0].submit(a_budget("web", namespace, least=23))
        observed(clients[0], "web", namespace, 7)

        def evict(number: int) -> str:
            try:
                clients[number % 3].evict(f"web-{number}", namespace)
            except ApiError as error:
                return error.code.name
            return "OK"

        with ThreadPoolExecutor(12) as pool:
            outcomes = list(pool.map(evict, range(30)))
        assert (outcomes.count("OK"), outcomes.count("RESOURCE_EXHAUSTED")) == (7, 23)
        going = [pod for pod in clients[0].list("pods", namespace=namespace) if pod.metadata.HasField("deletion_timestamp")]
        assert len(going) == 7
        for client in clients:
            client.close()
