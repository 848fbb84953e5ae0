"""What lies below objects: evictions of pods, how many pods there are to be, and what agents say of pods and nodes."""

from __future__ import annotations

from typing import Any

from rayched.api.errors import quoted
from rayched.api.kinds import AnyObject, unwrap
from rayched.client.errors import ApiError
from rayched.gateway import bodies, rendering
from rayched.gateway.calls import Document, GatewayAnswer, GatewayCall, read_manifest
from rayched.gateway.objects import delete_options, patcher, stored
from rayched.gateway.queries import dry_run
from rayched.gateway.statuses import StatusFailure, bad_request, of_api_error, success
from rayched.v1.core_pb2 import Node
from rayched.v1.services_pb2 import PodStatusUpdate

_SCALE_VERSION = "autoscaling/v1"


async def evict(call: GatewayCall) -> GatewayAnswer:
    """A deletion that disruption budgets allow. Its dry run stands in the options in the body."""
    document = bodies.read_document(call.body, call.content_type)
    metadata = document.get("metadata") or {}
    given = document.get("deleteOptions") or {}
    if not isinstance(metadata, dict) or not isinstance(given, dict):
        raise bad_request("metadata, deleteOptions: must be objects")
    if metadata.get("name") not in (None, "", call.path.name):
        raise bad_request(f"the name of the eviction ({metadata['name']}) does not match the name on the URL ({call.path.name})")
    options = delete_options(call, given)
    wanted = options.get("preconditions") or {}
    if not isinstance(wanted, dict):
        raise bad_request("preconditions: must be an object")
    try:
        await call.client.evict(
            call.path.name,
            call.path.namespace,
            uid=str(wanted.get("uid") or ""),
            resource_version=str(wanted.get("resourceVersion") or ""),
            grace_period_seconds=options["gracePeriodSeconds"],
            dry_run=dry_run(options["dryRun"]),
        )
    except ApiError as error:
        raise of_api_error(error, call.subject) from None
    return GatewayAnswer(201, success(201, call.subject))


async def get_scale(call: GatewayCall) -> GatewayAnswer:
    return GatewayAnswer(200, _scale(await stored(call)))


async def put_scale(call: GatewayCall) -> GatewayAnswer:
    return await _scaled(call, await stored(call), bodies.read_document(call.body, call.content_type))


async def patch_scale(call: GatewayCall) -> GatewayAnswer:
    change = patcher(call)
    item = await stored(call)
    return await _scaled(call, item, change(_scale(item)))


async def _scaled(call: GatewayCall, item: AnyObject, scale: Document) -> GatewayAnswer:
    """Writes the number of a Scale. A version that it names has to be the object's."""
    spec, metadata = scale.get("spec") or {}, scale.get("metadata") or {}
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        raise bad_request("spec, metadata: must be objects")
    replicas = spec.get("replicas", 0)
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not 0 <= replicas < 2**31:
        raise bad_request(f"spec.replicas: found {replicas!r}, want a whole number from 0 on")
    document = rendering.stored_document(item)
    document["spec"]["replicas"] = replicas
    if not metadata.get("resourceVersion"):
        document["metadata"].pop("resourceVersion")
    else:
        document["metadata"]["resourceVersion"] = metadata["resourceVersion"]
    changed = read_manifest(call, document)
    try:
        answer = await call.client.update(changed, dry_run=dry_run(call.query.get("dryRun")))
    except ApiError as error:
        raise of_api_error(error, call.subject) from None
    return GatewayAnswer(200, _scale(unwrap(answer.object)))


async def put_status(call: GatewayCall) -> GatewayAnswer:
    item = read_manifest(call, bodies.read_document(call.body, call.content_type))
    return await _reported(call, await stored(call), item)


async def patch_status(call: GatewayCall) -> GatewayAnswer:
    change = patcher(call)
    found = await stored(call)
    after = change(rendering.stored_document(found))
    if not isinstance(after.get("metadata"), dict):
        raise bad_request("the patch leaves no metadata")
    return await _reported(call, found, read_manifest(call, after))


async def _reported(call: GatewayCall, found: AnyObject, item: Any) -> GatewayAnswer:
    """Takes the status, and nothing else of the object, as an agent's report: the replica judges whether it may follow what is
    there. A dry run shows what was asked for."""
    for name, stated, present in (
        ("uid", item.metadata.uid, found.metadata.uid),
        ("resourceVersion", item.metadata.resource_version, found.metadata.resource_version),
    ):
        if stated and stated != present:
            message = f"metadata.{name}: found {quoted(stated)}, the object has {present}; read it again"
            raise StatusFailure(409, "Conflict", message, subject=call.subject)
    if dry_run(call.query.get("dryRun")):
        shown: Any = found
        shown.status.CopyFrom(item.status)
        return _shown(call, found)
    try:
        if isinstance(item, Node):
            return _shown(call, (await call.client.update_node_status(call.path.name, item.status)).node)
        pod, uid = call.path, found.metadata.uid
        report = PodStatusUpdate(namespace=pod.namespace, name=pod.name, uid=uid, status=item.status)
        (error,) = await call.client.update_pod_statuses([report])
        if error is not None:
            raise error
    except ApiError as failed:
        raise of_api_error(failed, call.subject) from None
    return _shown(call, await stored(call))


def _shown(call: GatewayCall, item: AnyObject) -> GatewayAnswer:
    return GatewayAnswer(200, rendering.one(call.path.resource.kind, item, call.form, call.now, call.include))


def _scale(item: AnyObject) -> Document:
    """The number of pods of an object, as autoscaling/v1 has it."""
    document = rendering.document(item)
    metadata, spec, status = document["metadata"], document.get("spec", {}), document.get("status", {})
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    selector = spec.get("selector") or {}
    return {
        "kind": "Scale",
        "apiVersion": _SCALE_VERSION,
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"replicas": spec.get("replicas", 1)},
        "status": {"replicas": status.get("replicas", 0), "selector": _selector_text(selector)},
    }


def _selector_text(selector: Document) -> str:
    """Of a LabelSelector, or of the labels that a ReplicationController selects by."""
    named = [selector[name] for name in ("matchLabels", "matchExpressions") if name in selector]
    # A label may be called so as well, and then it is a text.
    is_selector = bool(named) and not any(isinstance(one, str) for one in named)
    labels = selector.get("matchLabels", {}) if is_selector else selector
    parts = [f"{key}={text}" for key, text in sorted(labels.items())]
    for one in selector.get("matchExpressions", ()) if isinstance(selector.get("matchExpressions"), list) else ():
        key, operator, values = one["key"], one["operator"], ",".join(one.get("values", ()))
        words = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key, "DoesNotExist": f"!{key}"}
        parts.append(words[operator])
    return ",".join(parts)
