"""Gangs of four among the pods of a load, their PodGroups, and which of those that wait could run.

Members of a gang are alike and have no rules among each other, so that they fit whenever there is room for all of them.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from rayched.api.incomplete_groups import HOLD_ANNOTATION
from rayched.audit.auditor import Auditor
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PodGroup

GANG_MEMBERS = 4
PLAN_WRITE = b"group-plan"
BIND_WRITE = b"\n\x04bind"
"""What a leader's write of a plan, and of a binding, is for, as they stand in it."""
_SHARE = 0.04
"""Of the pods that a gang comes behind: about one pod in seven is a member."""


def with_gangs(pods: Iterator[Pod], prefix: str, draw: random.Random) -> Iterator[Pod]:
    """The pods, and gangs made of some of them."""
    for number in itertools.count():
        yield from itertools.takewhile(lambda _: draw.random() >= _SHARE, pods)
        for pod in itertools.islice(pods, GANG_MEMBERS):
            member = Pod(api_version="v1", kind="Pod", metadata={"namespace": pod.metadata.namespace, "uid": pod.metadata.uid})
            member.metadata.name = pod.metadata.name
            member.spec.scheduling_group.pod_group_name = f"{prefix}-gang-{number}"
            container = member.spec.containers.add(name="main", image="registry.example/rank:1")
            container.resources.requests["cpu"].string = "100m"
            yield member


def group_for(name: str, least: int = GANG_MEMBERS) -> PodGroup:
    """The PodGroup of a gang. Room of members that go is held for nobody: those that are left are deleted as well."""
    group = PodGroup(api_version="scheduling.k8s.io/v1beta1", kind="PodGroup")
    group.metadata.namespace, group.metadata.name = "default", name
    group.metadata.annotations[HOLD_ANNOTATION] = "0"
    group.spec.scheduling_policy.gang.min_count = least
    return group


def gang_of(pod: Pod) -> str:
    """Name of the pod's group; empty: it has none."""
    return pod.spec.scheduling_group.pod_group_name


def gangs_in(pods: Iterable[Pod]) -> list[str]:
    return list(dict.fromkeys(filter(None, map(gang_of, pods))))


def members_missing(pods: Sequence[Pod]) -> int:
    """How many members of the last pod's gang come after it."""
    gang = gang_of(pods[-1])
    return GANG_MEMBERS - sum(gang_of(pod) == gang for pod in pods) if gang else 0


def feasible_pending(auditor: Auditor) -> list[str]:
    """Pods that wait and fit a node, and members that wait of gangs of which enough fit together."""
    gangs: defaultdict[str, list[Pod]] = defaultdict(list)
    found: list[str] = []
    for pod, _ in auditor.pending():
        if gang_of(pod):
            gangs[f"{pod.metadata.namespace}/{gang_of(pod)}"].append(pod)
        elif auditor.node_for(pod) is not None:
            found.append(pod.metadata.name)
    for name, members in gangs.items():
        lacks = auditor.groups.lacking(name)
        if 0 <= lacks <= len(members) and auditor.fit_together(members[: max(1, lacks)]):
            found += [pod.metadata.name for pod in members]
    return found
