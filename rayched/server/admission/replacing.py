"""Replace: the stored object becomes what the caller says, whole, as after reading it, changing it and putting it back.

Unlike apply (applying.py) nothing is merged: labels and annotations that the object given does not have go. What is nobody's to
give or to take stays: the identity, the status, the finalizer by which a job counts a pod, the reference to the controller, and
of a node the taints that the leader sets from its conditions.

Pure. Source: the update (PUT) of Kubernetes 1.34.
"""

from __future__ import annotations

from rayched.api.defaulting import default
from rayched.api.errors import FieldError
from rayched.api.kinds import AnyObject
from rayched.api.termination import JOB_TRACKING
from rayched.api.validation import validate, validate_update
from rayched.server.admission.applying import IDENTITY, copy_fields, desire, replace_taints
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.meta_pb2 import ObjectMeta
from rayched.v1.workloads_pb2 import Job


def replace(stored: AnyObject, given: AnyObject) -> list[FieldError]:
    """Changes `stored` in place into the object given; all that is wrong with that."""
    result = type(stored)()
    result.CopyFrom(given)  # type: ignore[arg-type]
    if isinstance(result, Job):
        # What it selects by is made of its uid.
        result.metadata.uid = stored.metadata.uid
    default(result)
    copy_fields(stored.metadata, result.metadata, IDENTITY)
    result.metadata.resource_version = stored.metadata.resource_version
    result.metadata.generate_name = stored.metadata.generate_name
    _keep_what_controllers_own(stored.metadata, result.metadata)
    if "status" in stored.DESCRIPTOR.fields_by_name:
        copy_fields(stored, result, ("status",))
    if isinstance(stored, Pod) and isinstance(result, Pod) and not result.spec.node_name:
        result.spec.node_name = stored.spec.node_name
    if isinstance(stored, Node) and isinstance(result, Node):
        wanted = list(result.spec.taints)
        taints_before = Node()
        taints_before.CopyFrom(stored)
        replace_taints(taints_before, wanted)
        if list(taints_before.spec.taints) != wanted:
            del result.spec.taints[:]
            result.spec.taints.extend(taints_before.spec.taints)
    errors = validate_update(stored, result) + validate(result)
    if not errors:
        if desire(result) != desire(stored):
            result.metadata.generation = stored.metadata.generation + 1
        stored.CopyFrom(result)  # type: ignore[arg-type]
    return errors


def _keep_what_controllers_own(stored: ObjectMeta, result: ObjectMeta) -> None:
    if JOB_TRACKING in stored.finalizers and JOB_TRACKING not in result.finalizers:
        result.finalizers.append(JOB_TRACKING)
    if not any(owner.controller for owner in result.owner_references):
        result.owner_references.extend(owner for owner in stored.owner_references if owner.controller)
