"""The statuses that the leader's loop writes: against a count over plain dictionaries, whatever came in whatever order."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from rayched.api.kinds import POD, POD_DISRUPTION_BUDGET, REPLICA_SET, AnyObject, Kind, unwrap, wrap
from rayched.controllers.budget_view import BudgetView
from rayched.store.codec import decode_entry, encode
from rayched.store.entries import Change, Deleted, Entry
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Changed, ListedAll
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PodDisruptionBudget, ReplicaSet

KEYS = Keys()
NOW = 1_000_000
EPOCH = 7
SPACES, APPS = ("a", "b"), ("web", "api")


@dataclass
class Store:
    """Entries as etcd would hold them, and the view that follows."""

    view: BudgetView
    entries: dict[bytes, Entry] = field(default_factory=dict)
    revision: int = EPOCH

    def put(self, kind: Kind, message: AnyObject) -> None:
        key = KEYS.object_key(kind, message.metadata.namespace, message.metadata.name)
        self._deliver(Entry(key, encode(wrap(message)), self.revision + 1, self.revision + 1))

    def delete(self, kind: Kind, namespace: str, name: str) -> None:
        key = KEYS.object_key(kind, namespace, name)
        if key in self.entries:
            self._deliver(Deleted(key, self.revision + 1))

    def write_statuses(self) -> None:
        """Until nothing is left to be written; each write is guarded by the revision that the view knows."""
        while writes := self.view.writes(EPOCH, NOW):
            for write in writes:
                assert self.entries[write.key].mod_revision == write.mod_revision
                self._deliver(Entry(write.key, write.value, 1, self.revision + 1))

    def list_again(self) -> None:
        self.view.listed(ListedAll(tuple(self.entries.values()), self.revision))

    def budgets(self) -> list[PodDisruptionBudget]:
        found = [unwrap(decode_entry(entry)) for entry in self.entries.values()]
        return [message for message in found if isinstance(message, PodDisruptionBudget)]

    def _deliver(self, change: Change) -> None:
        self.revision += 1
        if isinstance(change, Entry):
            self.entries[change.key] = change
        else:
            del self.entries[change.key]
        self.view.changed(Changed((change,), self.revision))


def a_pod(space: str, number: int, app: str, ready: bool, deleting: bool) -> Pod:
    pod = Pod()
    pod.metadata.namespace, pod.metadata.name = space, f"pod-{number}"
    pod.metadata.labels["app"] = app
    pod.metadata.owner_references.add(kind="ReplicaSet", name=app, uid=f"{space}-{app}", controller=True)
    pod.status.conditions.add(type="Ready", status="True" if ready else "False")
    if deleting:
        pod.metadata.deletion_timestamp.seconds = NOW
    return pod


def a_budget(space: str, app: str, least: int | None, most: int | None) -> PodDisruptionBudget:
    budget = PodDisruptionBudget()
    budget.metadata.namespace, budget.metadata.name, budget.metadata.generation = space, app, 1
    budget.spec.selector.match_labels["app"] = app
    if least is not None:
        budget.spec.min_available.int_value = least
    if most is not None:
        budget.spec.max_unavailable.int_value = most
    return budget


def a_replica_set(space: str, app: str, scale: int) -> ReplicaSet:
    owner = ReplicaSet()
    owner.metadata.namespace, owner.metadata.name, owner.metadata.uid = space, app, f"{space}-{app}"
    owner.spec.replicas = scale
    return owner


space, app, number = st.sampled_from(SPACES), st.sampled_from(APPS), st.integers(0, 2)
step = st.one_of(
    st.tuples(st.just("pod"), space, number, app, st.booleans(), st.booleans()),
    st.tuples(st.just("no pod"), space, number),
    st.tuples(st.just("budget"), space, app, st.sampled_from([(0, None), (2, None), (None, 0), (None, 1), (None, 2)])),
    st.tuples(st.just("no budget"), space, app),
    st.tuples(st.just("controller"), space, app, st.integers(0, 6)),
    st.tuples(st.just("no controller"), space, app),
    st.tuples(st.just("list again")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(step, min_size=15, max_size=40))
def test_statuses_are_what_a_plain_count_gives(steps: list[tuple[object, ...]]) -> None:
    store = Store(BudgetView(KEYS, "test"))
    pods: dict[tuple[str, int], tuple[str, bool, bool]] = {}
    amounts: dict[tuple[str, str], tuple[int | None, int | None]] = {}
    scales: dict[tuple[str, str], int] = {}
    for one in steps:
        match one:
            case ("pod", str(place), int(which), str(label), bool(ready), bool(deleting)):
                pods[place, which] = label, ready, deleting
                store.put(POD, a_pod(place, which, label, ready, deleting))
            case ("no pod", str(place), int(which)):
                pods.pop((place, which), None)
                store.delete(POD, place, f"pod-{which}")
            case ("budget", str(place), str(label), (least, most)):
                amounts[place, label] = least, most
                store.put(POD_DISRUPTION_BUDGET, a_budget(place, label, least, most))
            case ("no budget", str(place), str(label)):
                amounts.pop((place, label), None)
                store.delete(POD_DISRUPTION_BUDGET, place, label)
            case ("controller", str(place), str(label), int(scale)):
                scales[place, label] = scale
                store.put(REPLICA_SET, a_replica_set(place, label, scale))
            case ("no controller", str(place), str(label)):
                scales.pop((place, label), None)
                store.delete(REPLICA_SET, place, label)
            case _:
                store.list_again()
        store.write_statuses()
        check(store, pods, amounts, scales)


def check(
    store: Store,
    pods: dict[tuple[str, int], tuple[str, bool, bool]],
    amounts: dict[tuple[str, str], tuple[int | None, int | None]],
    scales: dict[tuple[str, str], int],
) -> None:
    found = {(budget.metadata.namespace, budget.metadata.name): budget.status for budget in store.budgets()}
    assert found.keys() == amounts.keys()
    for (place, label), status in found.items():
        mine = [flags for (where, _), flags in pods.items() if where == place and flags[0] == label]
        healthy = sum(ready and not deleting for _, ready, deleting in mine)
        least, most = amounts[place, label]
        if most is not None and mine and (place, label) not in scales:
            assert (status.disruptions_allowed, status.conditions[0].reason) == (0, "SyncFailed")
            continue
        expected = len(mine) if most is None else scales[place, label] if mine else 0
        desired = least if least is not None else max(expected - (most or 0), 0)
        allowed = max(healthy - desired, 0) if expected else 0
        assert (status.expected_pods, status.desired_healthy, status.current_healthy, status.disruptions_allowed) == (
            expected,
            desired,
            healthy,
            allowed,
        )


def test_a_status_that_is_right_is_not_written_again() -> None:
    store = Store(BudgetView(KEYS, "test"))
    store.put(POD_DISRUPTION_BUDGET, a_budget("a", "web", 1, None))
    store.put(POD, a_pod("a", 1, "web", True, False))
    store.write_statuses()
    before = store.revision
    store.list_again()
    store.put(POD, a_pod("b", 1, "web", True, False))
    store.put(POD, a_pod("a", 2, "api", True, False))
    assert store.view.writes(EPOCH, NOW) == []
    assert store.revision == before + 2


def test_an_entry_whose_time_is_over_is_taken_out_without_any_other_change() -> None:
    store = Store(BudgetView(KEYS, "test"))
    budget = a_budget("a", "web", 1, None)
    budget.status.disrupted_pods["pod-1"].seconds = NOW
    store.put(POD, a_pod("a", 1, "web", True, False))
    store.put(POD_DISRUPTION_BUDGET, budget)
    store.write_statuses()
    assert store.view.writes(EPOCH, NOW + 119) == []
    (write,) = store.view.writes(EPOCH, NOW + 120)
    (late,) = [unwrap(decode_entry(Entry(write.key, write.value, 1, 1)))]
    assert isinstance(late, PodDisruptionBudget)
    assert (late.status.current_healthy, list(late.status.disrupted_pods)) == (1, [])


def test_an_object_that_cannot_be_read_is_as_if_it_were_not_there() -> None:
    store = Store(BudgetView(KEYS, "test"))
    store.put(POD_DISRUPTION_BUDGET, a_budget("a", "web", 1, None))
    store.put(POD, a_pod("a", 1, "web", True, False))
    for kind, name in ((POD, "pod-2"), (POD_DISRUPTION_BUDGET, "broken")):
        store._deliver(Entry(KEYS.object_key(kind, "a", name), b"\xff\xff", 1, store.revision + 1))
    odd = a_budget("a", "api", None, None)
    odd.spec.min_available.string_value = "some"
    store.put(POD_DISRUPTION_BUDGET, odd)
    assert len(store.view.writes(EPOCH, NOW)) == 1
