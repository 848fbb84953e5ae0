"""Apply: creates an object, or makes the stored one say what the manifest says.

What others own stays: the status, the node that a pod is bound to, what admission filled in at the creation (priority, overhead),
the identity. Labels, annotations, finalizers and owners stay where no manifest set them (last_applied.py). Everything else is the
manifest's, so a field that it no longer has goes; only of a node, which agents and administrators write too, taints and capacity
that the manifest does not mention stay.

A manifest may come back in two forms: as it was first written, or as `get` gave it, with everything that admission once merged
into it. Both must change nothing. So the step from the stored pod is judged for the manifest as it is and for the manifest after
admission's merges, and the one with fewer faults counts.

Pure. Source: PrepareForUpdate of the kinds in Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api.admission import apply_runtime_class, merge_label_keys
from rayched.api.defaulting import default
from rayched.api.errors import FieldError
from rayched.api.kinds import AnyObject
from rayched.api.validation import validate, validate_update
from rayched.api.well_known_taints import SET_BY_LEADER, TOLERATED_BY_ADMISSION
from rayched.server.admission import last_applied
from rayched.server.admission.admission import Classes
from rayched.server.reports import register
from rayched.v1.core_pb2 import Node, Pod, Taint, Toleration
from rayched.v1.workloads_pb2 import Job, PodGroup

IDENTITY: Final = ("uid", "creation_timestamp", "deletion_timestamp", "deletion_grace_period_seconds", "generation")
_GIVEN_AT_CREATION: Final = ("priority", "preemption_policy", "priority_class_name")


def step(stored: AnyObject, manifest: AnyObject, classes: Classes, now: Timestamp) -> list[FieldError]:
    """Changes `stored` in place into what the manifest makes of it; all that is wrong with that."""
    candidates = [_plain(stored, manifest, now)]
    if isinstance(stored, Pod):
        candidates.append(_merged(stored, manifest, classes))
    judged = [(validate_update(stored, candidate) + validate(candidate), candidate) for candidate in candidates]
    errors, best = min(judged, key=lambda pair: len(pair[0]))
    if not errors:
        last_applied.renew_note(manifest.metadata, best.metadata, best == stored)
        if desire(best) != desire(stored):
            best.metadata.generation = stored.metadata.generation + 1
        stored.CopyFrom(best)  # type: ignore[arg-type]
    return errors


def _plain(stored: AnyObject, manifest: AnyObject, now: Timestamp) -> AnyObject:
    """The manifest with defaults, and with what is not its own from the stored object."""
    result = type(stored)()
    if isinstance(stored, Node) and isinstance(manifest, Node):
        node = Node()
        node.CopyFrom(stored)
        register(node, manifest, now)
        # An absent spec must stay absent, so nothing is set that is not said.
        if manifest.spec.unschedulable:
            node.spec.unschedulable = True
        if manifest.spec.taints:
            replace_taints(node, manifest.spec.taints)
        last_applied.merge(stored.metadata, manifest.metadata, node.metadata)
        default(node)
        return node
    result.CopyFrom(manifest)  # type: ignore[arg-type]
    if isinstance(result, Job):
        # What it selects by is made of its uid, which a manifest need not have.
        result.metadata.uid = stored.metadata.uid
    default(result)
    _keep(stored, manifest, result)
    return result


def replace_taints(node: Node, wanted: Iterable[Taint]) -> None:
    """What is wanted, with the times that stored taints have, and with those that the leader sets from conditions."""
    stored = {(taint.key, taint.value, taint.effect): taint for taint in node.spec.taints}
    result = []
    for taint in wanted:
        one = Taint.FromString(taint.SerializeToString())
        known = stored.pop((taint.key, taint.value, taint.effect), None)
        if known is not None and known.HasField("time_added") and not one.HasField("time_added"):
            one.time_added.CopyFrom(known.time_added)
        result.append(one)
    said = {(taint.key, taint.effect) for taint in result}
    for (key, _, effect), taint in stored.items():
        if key in SET_BY_LEADER and (key, effect) not in said:
            result.append(Taint.FromString(taint.SerializeToString()))
    del node.spec.taints[:]
    node.spec.taints.extend(result)


def _merged(stored: AnyObject, manifest: AnyObject, classes: Classes) -> AnyObject:
    """As `_plain`, with what admission does to a new pod."""
    result = Pod()
    result.CopyFrom(manifest)  # type: ignore[arg-type]
    default(result)
    apply_runtime_class(result, classes.runtime)
    merge_label_keys(result)
    _keep(stored, manifest, result)
    _keep_tolerations(stored, result)
    return result


def _keep_tolerations(stored: AnyObject, result: Pod) -> None:
    """Those that admission may have added. The stored ones come first, so that equal lists are equal in their order too."""
    if not isinstance(stored, Pod):
        return
    said = list(result.spec.tolerations)
    kept = [found for found in stored.spec.tolerations if found in said or found.key in TOLERATED_BY_ADMISSION]
    copies = [Toleration.FromString(found.SerializeToString()) for found in [*kept, *(one for one in said if one not in kept)]]
    del result.spec.tolerations[:]
    result.spec.tolerations.extend(copies)


def _keep(stored: AnyObject, manifest: AnyObject, result: AnyObject) -> None:
    """Takes over from the stored object what the manifest cannot say or leaves open."""
    copy_fields(stored.metadata, result.metadata, IDENTITY)
    result.metadata.resource_version = stored.metadata.resource_version
    result.metadata.generate_name = stored.metadata.generate_name
    last_applied.merge(stored.metadata, manifest.metadata, result.metadata)
    if "status" in stored.DESCRIPTOR.fields_by_name:
        copy_fields(stored, result, ("status",))
    if isinstance(stored, PodGroup) and isinstance(result, PodGroup):
        _keep_given(stored.spec, result.spec)
    if isinstance(stored, Pod) and isinstance(result, Pod):
        if not result.spec.node_name:
            result.spec.node_name = stored.spec.node_name
        _keep_given(stored.spec, result.spec)
        if not result.spec.overhead:
            for resource, amount in stored.spec.overhead.items():
                result.spec.overhead[resource].CopyFrom(amount)


def _keep_given(stored: Any, result: Any) -> None:
    """What admission took from the class, where the manifest leaves it open."""
    for name in _GIVEN_AT_CREATION:
        unset = not result.priority_class_name if name == "priority_class_name" else not result.HasField(name)
        if unset:
            copy_fields(stored, result, (name,))


def copy_fields(source: Any, target: Any, names: tuple[str, ...]) -> None:
    """Fields as they are in the source, absence included."""
    for name in names:
        descriptor = source.DESCRIPTOR.fields_by_name[name]
        target.ClearField(name)
        if descriptor.message_type is not None:
            if source.HasField(name):
                getattr(target, name).CopyFrom(getattr(source, name))
        elif not descriptor.has_presence or source.HasField(name):
            setattr(target, name, getattr(source, name))


def desire(message: AnyObject) -> bytes:
    """The part of an object whose changes its generation counts: all but metadata and status."""
    rest = type(message)()
    rest.CopyFrom(message)  # type: ignore[arg-type]
    rest.ClearField("metadata")
    if "status" in rest.DESCRIPTOR.fields_by_name:
        rest.ClearField("status")
    return rest.SerializeToString(deterministic=True)
