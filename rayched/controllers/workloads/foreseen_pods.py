"""What controllers would do about ReplicaSets and jobs that somebody wants, for a plan. Pure.

Decided by the controllers' own turns: what one of them makes is there, and Pending, in the next one, and what it deletes is gone,
until a turn does nothing.

A foreseen pod has `new1`, `new2`, ... in its name where a real one has five drawn characters.
"""

from __future__ import annotations

import copy
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, NamedTuple

from rayched.api import kinds
from rayched.api.defaulting import DEFAULT_NAMESPACE, default
from rayched.api.errors import FieldError
from rayched.api.gangs import min_count
from rayched.api.kinds import AnyObject
from rayched.api.termination import FINAL_PHASES
from rayched.api.validation.objects import validate
from rayched.api.well_known_taints import DefaultTolerations
from rayched.controllers.workloads import jobs, replica_sets
from rayched.controllers.workloads.job_groups import group_of_job, wanted_group
from rayched.controllers.workloads.owned_pods import OwnedPod, PodSet, controller_link, facts_of_pod
from rayched.controllers.workloads.pod_making import PodMaker, TemplateRefused, name_for, named_copy
from rayched.controllers.workloads.workload_view import AdmissionClasses, PodOwner, SeenGroup, pod_owner, seen_group
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Job, PodGroup, ReplicaSet

PODS_MAX: Final = 100_000
"""That are foreseen in all: a manifest of one line may ask for two thousand million."""
_UID: Final = "00000000-0000-4000-8000-000000000000"
"""Of a workload that is in no store."""
_FIELDS: Final = ("replicas", "parallelism", "completions", "suspend")
"""What stays as it is stored where a manifest does not say it."""


class ForeseenPods(NamedTuple):
    made: list[Pod]
    deleted: list[Pod]
    group: PodGroup | None
    """Of a job that asks for one that is not there."""


class _Turn(NamedTuple):
    create: Sequence[int | None]
    """The index of each pod; None: it has none."""
    delete: Sequence[OwnedPod]


_NOTHING: Final = _Turn([], ())


class WorkloadForesight:
    """What controllers would do on a cluster that has these objects. Not to be changed while it is used."""

    def __init__(self, objects: Iterable[AnyObject], classes: AdmissionClasses, now: float) -> None:
        """`now`: Unix seconds."""
        self._classes, self._now, self._pods_left = classes, now, PODS_MAX
        self._keys = Keys()
        self._maker = PodMaker(self._keys, Random(0), DefaultTolerations())
        self._stored: dict[tuple[str, str, str], ReplicaSet | Job] = {}
        self._groups: dict[bytes, SeenGroup] = {}
        self._controlled: defaultdict[tuple[str, str, str], list[Pod]] = defaultdict(list)
        self._free: defaultdict[str, list[Pod]] = defaultdict(list)
        for item in objects:
            namespace, name = item.metadata.namespace, item.metadata.name
            if isinstance(item, ReplicaSet | Job):
                self._stored[kinds.of_message(item).name, namespace, name] = item
            elif isinstance(item, PodGroup):
                key = self._keys.object_key(kinds.POD_GROUP, namespace, name)
                self._groups[key] = seen_group(Entry(key, b"", 0, 0), item)
            elif isinstance(item, Pod):
                link = controller_link(item)
                if link is None:
                    self._free[namespace].append(item)
                else:
                    self._controlled[link.kind, namespace, link.name].append(item)

    def pods_of(self, wanted: ReplicaSet | Job) -> ForeseenPods:
        """`wanted` is as in a manifest, without defaults. Raises TemplateRefused, also where the API would refuse it."""
        workload = self._merged(wanted)
        if errors := validate(workload):
            raise TemplateRefused(errors)
        owner = pod_owner(Entry(b"", b"", 0, 0), workload)
        if owner is None or not owner.makes_pods:
            return ForeseenPods([], [], None)
        there = self._pods_there(owner)
        prototype = self._maker.prototype(owner, self._classes)
        group = self._group_of(owner, prototype)
        pods, memory = PodSet(), jobs.JobMemory()
        for pod in there.values():
            pods.put(_facts(pod))
        self._check_room(workload, len(pods.active))
        made: dict[str, Pod] = {}
        deleted: list[Pod] = []
        while (turn := self._turn(workload, pods, memory)) != _NOTHING:
            for leaver in turn.delete:
                pods.remove(leaver.key)
                if made.pop(leaver.name, None) is None:
                    deleted.append(there[leaver.name])
            for index in turn.create:
                name = _new_name(owner, index, len(made) + 1, pods)
                made[name] = named_copy(prototype, owner, name, index)
                pods.put(_facts(made[name]))
        self._pods_left -= len(made)
        return ForeseenPods([*made.values()], deleted, group)

    def _check_room(self, workload: ReplicaSet | Job, active: int) -> None:
        """Before any is made. Raises TemplateRefused."""
        if isinstance(workload, ReplicaSet):
            field, asked = "replicas", workload.spec.replicas
        else:
            # As many as run at once; none of one that is suspended.
            field, asked = "parallelism", min_count(workload)
        if asked - active > self._pods_left:
            raise TemplateRefused([FieldError(f"spec.{field}", f"a plan has at most {PODS_MAX} new pods of controllers")])

    def _merged(self, wanted: ReplicaSet | Job) -> ReplicaSet | Job:
        """As it would be stored."""
        workload = copy.deepcopy(wanted)
        metadata, spec = workload.metadata, workload.spec
        stored = self._stored.get((kinds.of_message(wanted).name, metadata.namespace or DEFAULT_NAMESPACE, metadata.name))
        metadata.uid = _UID
        if stored is not None:
            metadata.uid = stored.metadata.uid or _UID
            for field in spec.DESCRIPTOR.fields:
                if field.name in _FIELDS and stored.spec.HasField(field.name) and not spec.HasField(field.name):
                    setattr(spec, field.name, getattr(stored.spec, field.name))
            if isinstance(workload, Job) and isinstance(stored, Job):
                workload.status.CopyFrom(stored.status)
        default(workload)
        return workload

    def _pods_there(self, owner: PodOwner) -> dict[str, Pod]:
        """Its pods, and those that it would adopt, by name. Those of one that is in no store are known by its name."""
        metadata, found = owner.message.metadata, []
        for pod in self._controlled[owner.kind.name, metadata.namespace, metadata.name]:
            link = controller_link(pod)
            if metadata.uid == _UID or link is None or link.uid == metadata.uid:
                found.append(pod)
        for pod in self._free[metadata.namespace]:
            is_over = pod.metadata.HasField("deletion_timestamp") or pod.status.phase in FINAL_PHASES
            if not is_over and owner.matcher.matches(pod.metadata.labels):
                found.append(pod)
        return {pod.metadata.name: pod for pod in found}

    def _group_of(self, owner: PodOwner, prototype: Pod) -> PodGroup | None:
        if not isinstance(owner.message, Job):
            return None
        found = wanted_group(owner, owner.message, self._keys, self._groups)
        if isinstance(found, str):
            raise TemplateRefused([FieldError("metadata.name", found)])
        if found is None or found.seen is not None:
            return None
        return group_of_job(owner, prototype, found.count, "", self._now)

    def _turn(self, workload: ReplicaSet | Job, pods: PodSet, memory: jobs.JobMemory) -> _Turn:
        if isinstance(workload, ReplicaSet):
            of_set = replica_sets.turn_of(workload, pods, self._now)
            return _Turn([None] * of_set.create, of_set.delete)
        if jobs.is_finished(workload):
            return _NOTHING
        of_job = jobs.turn_of(workload, pods, memory, self._now)
        return _Turn(of_job.create, (*of_job.withdraw, *of_job.end))


def _new_name(owner: PodOwner, index: int | None, number: int, there: PodSet) -> str:
    """Of the `number`th that is new."""
    suffixes = (f"new{free}" for free in itertools.count(number if index is None else 1))
    names = (name_for(owner.message.metadata.name, index, suffix) for suffix in suffixes)
    return next(name for name in names if name not in there.names)


def _facts(pod: Pod) -> OwnedPod:
    """Its key is its name: a workload's pods have one namespace."""
    return facts_of_pod(Entry(pod.metadata.name.encode(), b"", 0, 0), pod)
