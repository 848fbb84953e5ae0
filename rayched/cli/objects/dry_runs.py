"""Changes that are judged and not made: the object as it is, changed here, and for `--dry-run=server` sent to be judged."""

from __future__ import annotations

from collections.abc import Iterable

import grpc

from rayched.api.kinds import AnyObject, unwrap, wrap
from rayched.cli.options import DryRunBy
from rayched.cli.references import NamedObject
from rayched.client.client import Client
from rayched.client.edits import Edit
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Node, Taint
from rayched.v1.services_pb2 import ApplyResponse


def would_change(client: Client, target: NamedObject, edit: Edit, dry_run: DryRunBy) -> bool:
    """Whether the edit would change anything. Raises ApiError where it would be refused."""
    before = client.get(target.kind, target.name, target.namespace)
    after = edit(before)
    if dry_run is DryRunBy.server:
        return client.update(after, dry_run=True).action == ApplyResponse.CONFIGURED
    return after != before


def cordon_edit(unschedulable: bool) -> Edit:
    def edit(found: AnyObject) -> AnyObject:
        node = _copy(found)
        if node.spec.unschedulable != unschedulable:
            node.spec.unschedulable = unschedulable
        return node

    return edit


def taint_edit(add: Iterable[Taint], remove: Iterable[Taint], overwrite: bool) -> Edit:
    """kubectl's rules, as the server has them. Raises ApiError (FAILED_PRECONDITION)."""
    added, removed = tuple(add), tuple(remove)

    def edit(found: AnyObject) -> AnyObject:
        node = _copy(found)
        taints = list(node.spec.taints)
        for gone in removed:
            kept = [one for one in taints if one.key != gone.key or gone.effect not in ("", one.effect)]
            if len(kept) == len(taints):
                raise _refused(node, gone, "the node does not have it")
            taints = kept
        for new in added:
            same = [one for one in taints if (one.key, one.effect) == (new.key, new.effect)]
            if same and same[0].value != new.value and not overwrite:
                raise _refused(node, new, f'the node has it with value "{same[0].value}", and overwrite is not set')
            taints = [one for one in taints if one not in same] + [new]
        copies = [Taint.FromString(one.SerializeToString()) for one in taints]
        if copies != list(node.spec.taints):
            del node.spec.taints[:]
            node.spec.taints.extend(copies)
        return node

    return edit


def _copy(found: AnyObject) -> Node:
    node = unwrap(wrap(found))
    assert isinstance(node, Node)
    return node


def _refused(node: Node, taint: Taint, why: str) -> ApiError:
    name = f'"{taint.key}":{taint.effect}' if taint.effect else f'"{taint.key}"'
    return ApiError(grpc.StatusCode.FAILED_PRECONDITION, f"Node {node.metadata.name}: taint {name}: {why}")
