"""Pod groups in the load of a world: gangs and basic groups that come, do not fit, shrink, change and go; and what comes of them.

| rule | what has to hold |
|---|---|
| L1 | no group waits whose missing members, all alike, fit together; each that may be tried is in the leader's queue |
| P8 | some time after the healing no plan is left |

P1 to P15 are the auditor's, at each revision. In two of three such worlds the scheduler takes it that the store takes few keys in
one transaction, so that groups are bound by plans, two members at a time. Then the worst is planned for the moments when a plan
is sent, was written, and is carried out: its leader dies or hangs, a node or a member goes, the group changes or goes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Final
from unittest import mock

from leader.etcd_shim import kv
from rayched.api import kinds
from rayched.api.incomplete_groups import HOLD_ANNOTATION, RELEASE_ANNOTATION
from rayched.audit.auditor import Auditor
from rayched.core.groups import deciding, recorded_plans
from rayched.core.groups.recorded_plans import OP_PLAN
from rayched.core.writes.pod_patches import OP_BIND
from rayched.core.writes.window import Send
from rayched.store.codec import encode
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Stored
from rayched.v1.workloads_pb2 import PodGroup
from tests.simulation.replica import KEYS, Replica
from tests.simulation.users import Users
from tests.simulation.world import MS, SECOND, World

_GROUPS: Final = b"/sim/cluster/podgroups/"
_MADE_ROOM: Final = b"-group-preempt-"
"""In the attempt of a write that ends pods for a group."""
_PLANS: Final = b"/sim/cluster/groupplans/"
_PLAN_KEY: Final = re.compile(rb"/sim/cluster/groupplans/default/(g[0-9]+x)")
"""In a request the byte behind a key may look like a digit: names of groups end with a letter."""
_MEMBERS: Final = (2, 8)
_ALIKE: Final = "alike"
"""Label of members that are all the same and have no rules among each other: they fit whenever there is a way."""


class Groups:
    """Not in every world: `is_on` says whether. Draws from a random source of its own."""

    def __init__(self, world: World, users: Users, counts: Counter[str], until: int) -> None:
        self._world, self._users, self._counts, self._until = world, users, counts, until
        self._random = random = Random(f"{world.seed}/groups")
        self.is_on, self.keys_max = _kind_of(random)
        """In the second kind of world the scheduler takes it that the store takes no more keys in one transaction."""
        self.members_fail = True
        """Some of those that run."""
        self._left = random.choice((2, 4, 7))
        self._number = 0
        self._models: dict[str, Pod] = {}
        """A member of each group, by the group's name."""
        self._replicas: list[Replica] = []
        self._rested = False

    def start(self, replicas: list[Replica]) -> None:
        self._replicas = replicas
        if self.is_on:
            self._world.after(self._gap(0.5), self._come)
            self._world.after(self._gap(1.5), self._change)

    def rest(self) -> None:
        self._rested = True

    def _gap(self, mean_seconds: float) -> int:
        return int(self._random.expovariate(1.0 / mean_seconds) * SECOND)

    # ---------------------------------------------------------------------------------------------------------------- load

    def _come(self) -> None:
        """A group with its members, in whatever order; some never come."""
        if self._rested or not self._left:
            return
        self._left -= 1
        self._number += 1
        self._counts["groups"] += 1
        random, size = self._random, self._random.randint(*_MEMBERS)
        group = self._group(size)
        members = self._members(group, size)
        late = random.randint(0, size) if random.random() < 0.4 else 0
        waits = sorted((self._gap(0.4) for _ in range(2)), reverse=random.random() < 0.3)
        self._world.after(waits[0], lambda: self._put(group))
        self._world.after(waits[1], lambda: self._users.submit(members[late:]))
        if late and random.random() < 0.7:
            self._world.after(waits[1] + self._gap(1.0), lambda: self._users.submit(members[:late]))
        self._world.after(self._gap(0.8), self._come)

    def _group(self, size: int) -> PodGroup:
        random = self._random
        group = PodGroup()
        group.metadata.namespace, group.metadata.name = "default", f"g{self._number}x"
        group.metadata.uid = f"uid-g{self._number}x"
        group.metadata.annotations[HOLD_ANNOTATION] = random.choice(("0", "1", "3"))
        if random.random() < 0.5:
            group.metadata.annotations[RELEASE_ANNOTATION] = random.choice(("1", "2"))
        if random.random() < 0.25:
            group.spec.scheduling_policy.basic.SetInParent()
        else:
            # Some want more than there will ever be.
            group.spec.scheduling_policy.gang.min_count = random.choice((1, size, size, max(1, size - 2), size + 2))
        if random.random() < 0.3:
            group.spec.priority, group.spec.priority_class_name = 100, "high"
        if group.spec.scheduling_policy.HasField("gang") and random.random() < 0.3:
            group.spec.disruption_mode.all.SetInParent()
        group.spec.preemption_policy = "PreemptLowerPriority"
        return group

    def _members(self, group: PodGroup, size: int) -> list[Pod]:
        random, alike = self._random, self._random.random() < 0.7
        # Four CPUs fit few nodes, and often none.
        cpu = random.choice(("250m", "500m", "500m", "1", "4"))
        members: list[Pod] = []
        for number in range(size):
            self._users.record.submitted += 1
            pod = Pod()
            pod.metadata.namespace, pod.metadata.name = "default", f"{group.metadata.name}-{number}"
            pod.metadata.uid = f"uid-{group.metadata.name}-{number}"
            pod.spec.scheduling_group.pod_group_name = group.metadata.name
            pod.spec.priority_class_name = group.spec.priority_class_name
            container = pod.spec.containers.add(name="main", image="registry.example/rank:1")
            container.resources.requests["cpu"].string = cpu if alike else random.choice(("250m", "500m", "1"))
            if alike:
                pod.metadata.labels[_ALIKE] = "yes"
            elif random.random() < 0.3:
                pod.spec.node_selector["zone"] = random.choice(("east", "west"))
            if random.random() < 0.03:
                pod.spec.scheduling_gates.add(name="wait")
            self._users.adorn(pod)
            members.append(pod)
        self._models[group.metadata.name] = members[0]
        return members

    def _change(self) -> None:
        """The user of a group changes it, deletes it, or deletes a member."""
        if self._rested:
            return
        groups = [(pair.key, Stored.FromString(pair.value)) for pair in self._world.etcd.under(KEYS.prefix(kinds.POD_GROUP))]
        if groups:
            self._disturb(*self._random.choice(groups))
        self._world.after(self._gap(1.2), self._change)

    def _disturb(self, key: bytes, stored: Stored) -> None:
        what, group = self._random.random(), stored.object.pod_group
        policy = group.spec.scheduling_policy
        if what < 0.12:
            self._counts["groups deleted"] += 1
            self._users.remove(key)
            if self._random.random() < 0.5:
                group.metadata.uid += "+"
                del group.status.conditions[:]
                again = encode(kinds.wrap(group))
                self._world.after(self._gap(0.5), lambda: self._users.put(key, again))
        elif what < 0.5 and policy.HasField("gang"):
            policy.gang.min_count = max(1, policy.gang.min_count + self._random.choice((-2, -1, 1)))
            self._users.put(key, stored.SerializeToString())
        elif what < 0.7:
            self._delete_member(group.metadata.name)
        elif what < 0.85 and self.members_fail:
            self._fail_members(group.metadata.name)
            if (model := self._models.get(group.metadata.name)) is not None:
                self._world.after(self._gap(0.3), lambda: self._submit_another(model))
        elif (model := self._models.get(group.metadata.name)) is not None:
            self._submit_another(model)

    def _submit_another(self, model: Pod) -> None:
        """In place of one that went."""
        self._counts["members replaced"] += 1
        self._users.record.submitted += 1
        pod = Pod()
        pod.CopyFrom(model)
        pod.metadata.name += f"-again-{self._users.record.submitted}"
        pod.metadata.uid = f"uid-{pod.metadata.name}"
        self._users.submit([pod])

    def _fail_members(self, group: str) -> None:
        for key, stored in self._users.pods():
            pod = stored.object.pod
            runs = pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed")
            if runs and pod.spec.scheduling_group.pod_group_name == group and self._random.random() < 0.7:
                self._counts["members failed"] += 1
                pod.status.phase = "Failed"
                self._users.put(key, stored.SerializeToString())

    def _delete_member(self, group: str) -> None:
        pods = [stored.object.pod for _, stored in self._users.pods()]
        members = [pod.metadata for pod in pods if pod.spec.scheduling_group.pod_group_name == group]
        if members:
            self._counts["members deleted"] += 1
            chosen = self._random.choice(members)
            self._users.delete(chosen.name, chosen.uid)

    def _put(self, group: PodGroup) -> None:
        key = KEYS.object_key(kinds.POD_GROUP, "default", group.metadata.name)
        self._users.put(key, encode(kinds.wrap(group)))

    # -------------------------------------------------------------------------------------------------------------- trouble

    def committed(self) -> None:
        """The store has changed. A plan that was written is a moment for trouble."""
        for event in self._world.etcd.history[-1].events:
            if event.kv.key.startswith(_GROUPS) and _MADE_ROOM in event.kv.value:
                self._counts["batches of victims of groups"] += 1
            if event.type == kv.Event.DELETE or not event.kv.key.startswith(_PLANS):
                continue
            self._counts["plans written"] += 1
            if not self._rested and self._world.now < self._until and self._random.random() < 0.6:
                name = event.kv.key.rpartition(b"/")[2].decode()
                plan = Stored.FromString(event.kv.value).group_plan
                node = self._random.choice(plan.members).node if plan.members else ""
                self._world.after(self._random.randrange(12 * MS), lambda name=name, node=node: self._trouble(name, node))  # type: ignore[misc]

    def sending(self, replica: Replica, send: Send) -> None:
        """A leader is about to send what a plan is about."""
        found = _PLAN_KEY.search(send.content)
        if found is None or self._rested or self._world.now >= self._until or self._random.random() > 0.4:
            return
        if send.op == OP_PLAN:
            pair = self._world.etcd.get(KEYS.object_key(kinds.POD_GROUP, "default", found[1].decode()))
            if pair is not None:
                self._counts["groups changed while their plan is sent"] += 1
                stored = Stored.FromString(pair.value)
                stored.object.pod_group.metadata.labels["changed"] = str(self._world.now)
                self._users.put(pair.key, stored.SerializeToString())
        elif send.op == OP_BIND:
            # The bindings come late, in the time of a leader that has not looked at the plan yet.
            self._counts["bindings of a plan that come late"] += 1
            pause_ns = int(self._random.uniform(1.5, 4.0) * SECOND)
            replica.process.pause(pause_ns)
            for other in self._replicas:
                if other is not replica:
                    other.scheduling.process.pause(pause_ns + int(self._random.uniform(0.0, 1.0) * SECOND))

    def _trouble(self, group: str, node: str) -> None:
        """Between the parts of what a plan says."""
        leader = next((one for one in self._replicas if one.is_up and one.candidate.believes()), None)
        if self._rested or leader is None:
            return
        random = self._random
        lasts_ns = int(random.uniform(0.3, 3.0) * SECOND)
        troubles: tuple[tuple[str, Callable[[], None]], ...] = (
            ("its leader is killed", lambda: leader.crash(lasts_ns)),
            ("its scheduler is killed", lambda: leader.scheduler_crashes(lasts_ns // 4)),
            ("its leader hangs", lambda: leader.process.pause(2 * lasts_ns)),
            ("its queue is lost", lambda: leader.scheduling.process.alive and leader.scheduling.lose_queue()),
            # A plan whose members have all lost their places has no node.
            ("its node goes", lambda: node and self._users.remove(KEYS.object_key(kinds.NODE, "", node))),
            ("a member goes", lambda: self._delete_member(group)),
            ("its group goes", lambda: self._users.remove(KEYS.object_key(kinds.POD_GROUP, "default", group))),
        )
        name, happens = random.choices(troubles, (4, 4, 3, 1, 1, 1, 1))[0]
        self._counts[f"behind a plan {name}"] += 1
        self._world.trace("behind a plan", name)
        self._world.tell(f"-- behind the plan of {group} {name}")
        happens()

    # ------------------------------------------------------------------------------------------------------------- liveness

    @staticmethod
    def queued(auditor: Auditor) -> int:
        """Groups that are to be in the leader's queue."""
        return sum(
            (lacks := auditor.groups.lacking(name)) >= 0 and len(members) >= lacks for name, members in _waiting(auditor).items()
        )

    @staticmethod
    def missing(auditor: Auditor) -> tuple[str, str] | None:
        """The rule that does not hold yet, and what is wrong."""
        if plans := auditor.groups.plans.progress():
            return "P8", f"plans are left: {plans}"
        for name, members in _waiting(auditor).items():
            lacks = auditor.groups.lacking(name)
            if lacks < 0 or len(members) < lacks or not all(_ALIKE in pod.metadata.labels for pod in members):
                continue
            if auditor.fit_together(members[: max(1, lacks)]):
                return "L1", f"{max(1, lacks)} members of pod group {name} wait and fit"
        return None


@contextmanager
def small_parts(seed: int) -> Iterator[None]:
    """While inside plans are carried out two members at a time in worlds that have plans, so that there is a time between. In
    half of all worlds a search for victims rests after each unit."""
    _, keys_max = _kind_of(Random(f"{seed}/groups"))
    writes_max = recorded_plans.WRITES_MAX if keys_max is None else 2
    piece_seconds = 0.0 if Random(f"{seed}/pieces").random() < 0.5 else deciding.PIECE_SECONDS
    with mock.patch.object(recorded_plans, "WRITES_MAX", writes_max), mock.patch.object(deciding, "PIECE_SECONDS", piece_seconds):
        yield


def _kind_of(random: Random) -> tuple[bool, int | None]:
    is_on, keys_max = random.random() < 0.4, random.choice((None, 3, 3))
    return is_on, keys_max if is_on else None


def group_of(pod: Pod) -> str:
    """namespace/name of the pod's group; empty: it has none."""
    group = pod.spec.scheduling_group.pod_group_name
    return f"{pod.metadata.namespace}/{group}" if group else ""


def _waiting(auditor: Auditor) -> dict[str, list[Pod]]:
    """Members that wait, by group."""
    found: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod, _ in auditor.pending():
        if (name := group_of(pod)) and pod.status.phase not in ("Succeeded", "Failed"):
            found[name].append(pod)
    return found
