"""What lies below objects: evictions of pods, and the number of pods of what has several."""

from __future__ import annotations

from rayched.api.kinds import AnyObject, unwrap
from rayched.client.errors import ApiError
from rayched.gateway import bodies, rendering
from rayched.gateway.calls import Document, GatewayAnswer, GatewayCall, read_manifest
from rayched.gateway.objects import delete_options, patcher, stored
from rayched.gateway.queries import dry_run
from rayched.gateway.statuses import bad_request, of_api_error, success

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
