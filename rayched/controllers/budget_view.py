"""What the statuses of disruption budgets depend on, as the watch tells it; and the writes that bring them up to date. No I/O.

Fed with deliveries of one watch over the cluster's prefix, so that a budget and the pods it selects are seen as of one revision:
what an eviction wrote to both is seen at once. A change marks the budgets that it concerns; `writes` judges those anew, and gives
a write for each whose status has changed, guarded by the budget's own revision. A write that meets a conflict needs no care:
what it met comes with the watch, and marks the budget again.

Pods are grouped by their labels, so a selector is matched once for a group. An object that cannot be read counts as not there.

Owner: BudgetStatus, under its lock. Cost: about 23 µs a change of a pod, 1 µs a selected pod for a budget that is judged.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rayched.api import kinds
from rayched.api.disruption import BudgetedPod, Controller, facts_of, judge, selector_of
from rayched.api.kinds import POD, POD_DISRUPTION_BUDGET, REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET
from rayched.api.selectors import LabelSelectorMatcher
from rayched.store.codec import PoisonedObject, decode_entry, encode
from rayched.store.entries import Deleted, Entry
from rayched.store.keys import Keys, ObjectKey
from rayched.store.list_watch_effects import Changed, ListedAll
from rayched.store.transactions import GuardedPut
from rayched.v1.core_pb2 import Pod, ReplicationController
from rayched.v1.storage_pb2 import LeaderWrite, Stored
from rayched.v1.workloads_pb2 import Object, PodDisruptionBudget, ReplicaSet, StatefulSet

OP_BUDGET: Final = "budget"

_WITH_SCALE: Final = (REPLICA_SET.name, STATEFUL_SET.name, REPLICATION_CONTROLLER.name)

log = logging.getLogger(__name__)

LabelsKey = tuple[tuple[str, str], ...]


@dataclass(slots=True, eq=False)
class _AlikePods:
    """Pods of one namespace with the same labels. `budgets` is None until it is asked for."""

    labels: dict[str, str]
    pods: dict[bytes, BudgetedPod] = field(default_factory=dict)
    budgets: frozenset[bytes] | None = None


@dataclass(slots=True, eq=False)
class _Budget:
    entry: Entry
    message: PodDisruptionBudget
    matcher: LabelSelectorMatcher


@dataclass(slots=True, eq=False)
class _Namespace:
    groups: dict[LabelsKey, _AlikePods] = field(default_factory=dict)
    budgets: dict[bytes, _Budget] = field(default_factory=dict)
    controllers: dict[bytes, tuple[str, str]] = field(default_factory=dict)
    """Kind and uid of what lies under a key."""
    scales: dict[tuple[str, str], int] = field(default_factory=dict)
    """By kind and uid."""

    def budgets_of(self, group: _AlikePods) -> frozenset[bytes]:
        if group.budgets is None:
            group.budgets = frozenset(key for key, budget in self.budgets.items() if budget.matcher.matches(group.labels))
        return group.budgets

    def forget_matches(self) -> None:
        for group in self.groups.values():
            group.budgets = None

    def scale_of(self, controller: Controller) -> int | None:
        return self.scales.get((controller.kind, controller.uid))


class BudgetView:
    """Budgets, and the pods and controllers of their namespaces, as of `revision`."""

    def __init__(self, keys: Keys, incarnation: str, decode: Callable[[Entry], Object] = decode_entry) -> None:
        """`incarnation` begins the attempt ids of all writes, and is of no other view. `decode` may share what it gives."""
        self._keys = keys
        self._decode = decode
        self._incarnation = incarnation
        self._number = 0
        self.revision = 0
        self._namespaces: defaultdict[str, _Namespace] = defaultdict(_Namespace)
        self._group_of: dict[bytes, LabelsKey] = {}
        self._changed: set[tuple[str, bytes]] = set()
        """Budgets to be judged, by namespace and key."""
        self._rechecks: dict[tuple[str, bytes], int] = {}
        """When a budget is to be judged although nothing has changed."""

    @property
    def has_budgets(self) -> bool:
        return any(namespace.budgets for namespace in self._namespaces.values())

    # -------------------------------------------------------------------------------------------------------- following

    def listed(self, listed: ListedAll) -> None:
        """Everything there is; what was known before is forgotten."""
        self._namespaces.clear()
        self._group_of.clear()
        self._rechecks.clear()
        self._changed.clear()
        for entry in listed.entries:
            self._apply(entry)
        self.revision = listed.revision

    def changed(self, changed: Changed) -> None:
        for change in changed.changes:
            self._apply(change)
        self.revision = changed.revision

    def _apply(self, change: Entry | Deleted) -> None:
        name = self._keys.parse(change.key)
        if name is None:
            return
        if name.kind == POD.name:
            self._pod_changed(name, change)
        elif name.kind == POD_DISRUPTION_BUDGET.name:
            self._budget_changed(name, change)
        elif name.kind in _WITH_SCALE:
            self._scale_changed(name, change)

    def _pod_changed(self, name: ObjectKey, change: Entry | Deleted) -> None:
        namespace = self._namespaces[name.namespace]
        message = self._message_of(change)
        labels_key: LabelsKey | None = None
        facts: BudgetedPod | None = None
        if isinstance(message, Pod):
            labels_key = tuple(sorted(message.metadata.labels.items()))
            facts = facts_of(message)
        old_key = self._group_of.get(change.key)
        if old_key is not None:
            group = namespace.groups[old_key]
            if old_key == labels_key and group.pods[change.key] == facts:
                return
            self._mark(name.namespace, namespace.budgets_of(group))
            if old_key != labels_key:
                del group.pods[change.key]
                del self._group_of[change.key]
                if not group.pods:
                    del namespace.groups[old_key]
        if labels_key is None or facts is None:
            return
        group = namespace.groups.setdefault(labels_key, _AlikePods(dict(labels_key)))
        group.pods[change.key] = facts
        self._group_of[change.key] = labels_key
        self._mark(name.namespace, namespace.budgets_of(group))

    def _budget_changed(self, name: ObjectKey, change: Entry | Deleted) -> None:
        namespace = self._namespaces[name.namespace]
        old = namespace.budgets.pop(change.key, None)
        budget = self._budget_of(change)
        if budget is None:
            if old is not None:
                namespace.forget_matches()
            return
        namespace.budgets[change.key] = budget
        if old is None or old.message.spec != budget.message.spec:
            namespace.forget_matches()
        self._mark(name.namespace, (change.key,))

    def _scale_changed(self, name: ObjectKey, change: Entry | Deleted) -> None:
        namespace = self._namespaces[name.namespace]
        old_identity = namespace.controllers.pop(change.key, None)
        old = None if old_identity is None else (old_identity, namespace.scales.pop(old_identity))
        message = self._message_of(change)
        new = None
        if isinstance(message, ReplicaSet | StatefulSet | ReplicationController):
            # Without a number it is one, as defaulting says.
            new = (name.kind, message.metadata.uid), message.spec.replicas if message.spec.HasField("replicas") else 1
            namespace.controllers[change.key] = new[0]
            namespace.scales[new[0]] = new[1]
        if new != old:
            self._mark(name.namespace, namespace.budgets)

    def _mark(self, namespace: str, keys: frozenset[bytes] | tuple[bytes, ...] | dict[bytes, _Budget]) -> None:
        for key in keys:
            self._changed.add((namespace, key))

    def _message_of(self, change: Entry | Deleted) -> kinds.AnyObject | None:
        if isinstance(change, Deleted):
            return None
        try:
            return kinds.unwrap(self._decode(change))
        except PoisonedObject as error:
            log.warning("budgets leave out an object that cannot be read: %s", error)
            return None

    def _budget_of(self, change: Entry | Deleted) -> _Budget | None:
        if isinstance(change, Deleted):
            return None
        try:
            message = kinds.unwrap(self._decode(change))
            if not isinstance(message, PodDisruptionBudget):
                raise PoisonedObject(change.key, change.mod_revision, "is no PodDisruptionBudget")
            return _Budget(change, message, selector_of(message))
        except (PoisonedObject, ValueError) as error:
            log.warning("a budget that cannot be read gets no status: %s", error)
            return None

    # ---------------------------------------------------------------------------------------------------------- judging

    def again(self, key: bytes) -> None:
        """A write on this budget has no definite outcome: it is judged again."""
        name = self._keys.parse(key)
        if name is not None:
            self._mark(name.namespace, (key,))

    def writes(self, epoch: int, now_seconds: int) -> list[GuardedPut]:
        """The statuses that are not as they should be. What is not judged now is judged when something changes."""
        self._changed.update(budget for budget, at in self._rechecks.items() if at <= now_seconds)
        marked, self._changed = sorted(self._changed), set()
        writes = (self._judged(place, key, epoch, now_seconds) for place, key in marked)
        return [write for write in writes if write is not None]

    def _judged(self, place: str, key: bytes, epoch: int, now_seconds: int) -> GuardedPut | None:
        self._rechecks.pop((place, key), None)
        namespace = self._namespaces[place]
        budget = namespace.budgets.get(key)
        if budget is None:
            return None
        pods = [pod for group in namespace.groups.values() if key in namespace.budgets_of(group) for pod in group.pods.values()]
        try:
            judged = judge(budget.message, pods, namespace.scale_of, now_seconds)
        except ValueError as error:
            # No admission let this in; the other budgets go on.
            log.warning("the budget under key %s gets no status: %s", key.decode(errors="backslashreplace"), error)
            return None
        if judged.recheck_at_seconds is not None:
            self._rechecks[place, key] = judged.recheck_at_seconds
        if judged.status == budget.message.status:
            return None
        self._number += 1
        write = LeaderWrite(
            op=OP_BUDGET,
            epoch=epoch,
            attempt=f"{self._incarnation}-{OP_BUDGET}-{self._number}",
            decided_at_revision=self.revision,
        )
        changed = Stored.FromString(budget.entry.value)
        changed.object.pod_disruption_budget.status.CopyFrom(judged.status)
        return GuardedPut(key, budget.entry.mod_revision, encode(changed.object, write), attempt=write.attempt)
