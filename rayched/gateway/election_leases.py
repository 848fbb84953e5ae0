"""The lease under which a replica leads, shown as Kubernetes shows that of kube-scheduler: kube-system/rayched, read only.

It is a lease of etcd's own, and no object: what is shown is what a replica says of it, as to `rayched leader`, and who may ask
for that may read it. Its version is the epoch of the term. While nobody leads it has no holder and no times.

Source: Lease of coordination.k8s.io/v1 and its printer, Kubernetes 1.34.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api import columns
from rayched.api.moments import moment_text
from rayched.client.errors import ApiError
from rayched.gateway import rendering
from rayched.gateway.calls import Document, GatewayAnswer, GatewayCall
from rayched.gateway.queries import INCLUDE_NONE, INCLUDE_OBJECT, list_query
from rayched.gateway.served import LEASES_VERSION
from rayched.gateway.statuses import bad_request, not_allowed, not_found, of_api_error
from rayched.v1.services_pb2 import GetLeaderResponse

NAMESPACE: Final = "kube-system"
NAME: Final = "rayched"
_HEADINGS: Final = ("NAME", "HOLDER", "AGE")


async def serve(call: GatewayCall, method: str) -> GatewayAnswer:
    """Raises StatusFailure."""
    query, path = list_query(call.query), call.path
    if method != "GET" or query.watch:
        raise not_allowed(method)
    if query.label_selector or query.field_selector:
        raise bad_request("labelSelector, fieldSelector: leases are not selected; there is one, which has a name")
    if path.name and (path.namespace, path.name) != (NAMESPACE, NAME):
        raise not_found(call.subject)
    try:
        leader = await call.client.leader()
    except ApiError as error:
        raise of_api_error(error, call.subject) from None
    found = [_lease(leader)] if path.namespace in ("", NAMESPACE) else []
    metadata = {"resourceVersion": str(leader.epoch)}
    if call.form.table:
        rows = [_row(lease, leader, call) for lease in found]
        headings = [rendering.definition(heading) for heading in _HEADINGS]
        table = {"kind": "Table", "apiVersion": rendering.META, "metadata": metadata, "columnDefinitions": headings, "rows": rows}
        return GatewayAnswer(200, table)
    shown = [rendering.partial(lease) for lease in found] if call.form.metadata_only else found
    if path.name:
        return GatewayAnswer(200, shown[0])
    version, kind = (rendering.META, "PartialObjectMetadata") if call.form.metadata_only else (LEASES_VERSION, "Lease")
    return GatewayAnswer(200, {"kind": f"{kind}List", "apiVersion": version, "metadata": metadata, "items": shown})


def _lease(leader: GetLeaderResponse) -> Document:
    metadata: Document = {"name": NAME, "namespace": NAMESPACE, "resourceVersion": str(leader.epoch)}
    spec: Document = {"holderIdentity": leader.holder, "leaseTransitions": leader.transitions}
    if leader.holder:
        metadata["creationTimestamp"] = moment_text(leader.acquired_at_ms / 1_000)
        # Whole seconds in Kubernetes, and rounded up: it has not ended before it has.
        spec["leaseDurationSeconds"] = -(-leader.lease_duration_ms // 1_000)
        spec["acquireTime"], spec["renewTime"] = _micro_time(leader.acquired_at_ms), _micro_time(leader.renewed_at_ms)
    return {"kind": "Lease", "apiVersion": LEASES_VERSION, "metadata": metadata, "spec": spec}


def _micro_time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1_000, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def _row(lease: Document, leader: GetLeaderResponse, call: GatewayCall) -> Document:
    age = columns.age(Timestamp(seconds=leader.acquired_at_ms // 1_000), call.now)
    row: Document = {"cells": [NAME, leader.holder, age]}
    if call.include != INCLUDE_NONE:
        row["object"] = lease if call.include == INCLUDE_OBJECT else rendering.partial(lease)
    return row
