"""Pods made of a controller's template: admitted once, then copied with a name, a uid and, of an Indexed job, an index.

A pod that a controller makes passes the same admission as one that a client sends. What is wrong with it is wrong with all of a
template, so nothing is created and the controller says why. Randomness comes in.

Source: GetPodFromTemplate, the name generator and the indexes of batch/v1 Job, Kubernetes 1.34.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from random import Random
from typing import Final
from uuid import UUID

from rayched.api.admission import admit_pod
from rayched.api.errors import FieldError
from rayched.api.gangs import asks_for_group
from rayched.api.job_labels import COMPLETION_INDEX
from rayched.api.kinds import JOB, POD, wrap
from rayched.api.names import SUFFIX_ALPHABET, SUFFIX_CHARACTERS
from rayched.api.termination import JOB_TRACKING
from rayched.api.validation.jobs import INDEXED
from rayched.api.well_known_taints import DefaultTolerations
from rayched.controllers.workloads.workload_view import AdmissionClasses, PodOwner
from rayched.store.codec import encode
from rayched.store.keys import Keys
from rayched.store.transactions import GuardedPut
from rayched.v1.core_pb2 import Container, Pod
from rayched.v1.storage_pb2 import LeaderWrite
from rayched.v1.workloads_pb2 import Job

INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
_NAME_CHARACTERS_MAX: Final = 63
_PROTOTYPES_MAX: Final = 256


class TemplateRefused(Exception):
    """No pod can be made of the template; `str()` is one line with everything that is wrong."""

    def __init__(self, errors: Collection[FieldError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


class PodMaker:
    """Owned by one reconciler."""

    def __init__(self, keys: Keys, random: Random, tolerations: DefaultTolerations) -> None:
        self._keys = keys
        self._random = random
        self._tolerations = tolerations
        self._prototypes: OrderedDict[tuple[str, int, int], Pod | TemplateRefused] = OrderedDict()

    def prototype(self, workload: PodOwner, classes: AdmissionClasses) -> Pod:
        """What all its pods have in common; not to be changed. Raises TemplateRefused."""
        key = workload.identity, workload.message.metadata.generation, classes.version
        found = self._prototypes.get(key)
        if found is None:
            found = self._prototypes[key] = self._admitted(workload, classes)
            if len(self._prototypes) > _PROTOTYPES_MAX:
                self._prototypes.popitem(last=False)
        if isinstance(found, TemplateRefused):
            raise found
        return found

    def _admitted(self, workload: PodOwner, classes: AdmissionClasses) -> Pod | TemplateRefused:
        owner, template = workload.message.metadata, workload.message.spec.template
        pod = Pod()
        pod.spec.CopyFrom(template.spec)
        metadata = pod.metadata
        metadata.namespace = owner.namespace
        metadata.labels.update(template.metadata.labels)
        metadata.annotations.update(template.metadata.annotations)
        metadata.generation = 1
        refer_to(pod, workload)
        index = None
        if isinstance(workload.message, Job) and workload.message.spec.completion_mode == INDEXED:
            for container in (*pod.spec.init_containers, *pod.spec.containers):
                _tell_index(container)
            index = 0
        _give_index(pod, owner.name, index)
        if isinstance(workload.message, Job) and asks_for_group(workload.message):
            pod.spec.scheduling_group.pod_group_name = owner.name
        # Admission judges a whole pod, so this one is called as the longest of them could be.
        metadata.name = name_for(owner.name, index, "x" * SUFFIX_CHARACTERS)
        errors = admit_pod(pod, classes.priority, classes.runtime, tolerations=self._tolerations)
        return TemplateRefused(errors) if errors else pod

    def name(self, workload: PodOwner, index: int | None, is_taken: Callable[[str], bool]) -> str:
        """One that none of its pods has."""
        while True:
            suffix = "".join(self._random.choices(SUFFIX_ALPHABET, k=SUFFIX_CHARACTERS))
            name = name_for(workload.message.metadata.name, index, suffix)
            if not is_taken(name):
                return name

    def uid(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def creation(
        self, workload: PodOwner, prototype: Pod, name: str, index: int | None, wall: float, write: LeaderWrite
    ) -> GuardedPut:
        """Creates the pod, if its controller is still as it was seen: then its namespace is there too."""
        pod = named_copy(prototype, workload, name, index)
        metadata = pod.metadata
        metadata.uid = self.uid()
        metadata.creation_timestamp.seconds = int(wall)
        key = self._keys.object_key(POD, metadata.namespace, name)
        node = pod.spec.node_name
        mark = self._keys.taken(node) if node else b""
        return GuardedPut(key, 0, encode(wrap(pod), write), also=workload.condition, attempt=write.attempt, mark=mark)


def refer_to(pod: Pod, workload: PodOwner) -> None:
    """Makes the workload the pod's controller, in place, and the pod one that a job counts."""
    owner = workload.message.metadata
    pod.metadata.owner_references.add(
        api_version=workload.kind.api_version,
        kind=workload.kind.name,
        name=owner.name,
        uid=owner.uid,
        controller=True,
        block_owner_deletion=True,
    )
    if workload.kind is JOB and JOB_TRACKING not in pod.metadata.finalizers:
        pod.metadata.finalizers.append(JOB_TRACKING)


def name_for(owner: str, index: int | None, suffix: str) -> str:
    """web-x7k2p, or count-3-x7k2p; a long name of the controller is cut, never the index."""
    middle = "-" if index is None else f"-{index}-"
    # A part of a name ends with neither a dot nor a dash, wherever the whole was cut.
    return owner[: _NAME_CHARACTERS_MAX - len(middle) - len(suffix)].rstrip(".-") + middle + suffix


def named_copy(prototype: Pod, workload: PodOwner, name: str, index: int | None) -> Pod:
    """A pod of the workload. `index` None: it has none."""
    pod = Pod()
    pod.CopyFrom(prototype)
    pod.metadata.name = name
    _give_index(pod, workload.message.metadata.name, index)
    return pod


def _give_index(pod: Pod, owner: str, index: int | None) -> None:
    if index is not None:
        pod.metadata.annotations[COMPLETION_INDEX] = pod.metadata.labels[COMPLETION_INDEX] = str(index)
        pod.spec.hostname = f"{owner}-{index}"


def _tell_index(container: Container) -> None:
    if all(one.name != INDEX_VARIABLE for one in container.env):
        variable = container.env.add(name=INDEX_VARIABLE)
        variable.value_from.field_ref.field_path = f"metadata.labels['{COMPLETION_INDEX}']"
