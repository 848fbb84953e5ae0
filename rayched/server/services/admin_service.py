"""The service rayched.v1.Admin: cordon, taint, label and scale, with kubectl's rules."""

from __future__ import annotations

from collections.abc import Callable

from rayched.api.errors import FieldError
from rayched.api.kinds import NODE, AnyObject, wrap
from rayched.api.validation import validate
from rayched.server.admission.admission import Admission
from rayched.server.admission.edits import EditRefused, edit_labels, edit_taints, scale
from rayched.server.admission.object_judge import ObjectJudge
from rayched.server.call_guard import CallGuard
from rayched.server.errors import forbidden_by_state, invalid
from rayched.server.objects import CallTarget, Objects, timestamp_now
from rayched.server.rpc import Call
from rayched.v1.core_pb2 import Node
from rayched.v1.services_pb2 import (
    CordonRequest,
    CordonResponse,
    LabelRequest,
    LabelResponse,
    ScaleRequest,
    ScaleResponse,
    TaintRequest,
    TaintResponse,
)

NodeEdit = Callable[[Node], None]


class AdminService:
    """Any replica serves it."""

    def __init__(self, objects: Objects, admission: Admission, guard: CallGuard) -> None:
        self._objects = objects
        self._admission = admission
        self._guard = guard

    async def cordon(self, request: CordonRequest, _: Call) -> CordonResponse:
        def edit(node: Node) -> None:
            # Even setting what is there already would create an absent spec, and count as a change.
            if node.spec.unschedulable != request.unschedulable:
                node.spec.unschedulable = request.unschedulable

        node, changed = await self._edit_node(request.node, edit)
        return CordonResponse(node=node, changed=changed)

    async def taint(self, request: TaintRequest, _: Call) -> TaintResponse:
        if not request.add and not request.remove:
            raise invalid("add, remove: at least one taint is required")

        def edit(node: Node) -> None:
            edit_taints(node, request.add, request.remove, request.overwrite, timestamp_now())

        node, changed = await self._edit_node(request.node, edit)
        return TaintResponse(node=node, changed=changed)

    async def label(self, request: LabelRequest, call: Call) -> LabelResponse:
        if not request.set and not request.remove:
            raise invalid("set, remove: at least one label is required")
        target = self._objects.target(request.key)
        self._judge(call).refuse_labels(str(target), [*request.set, *request.remove])

        def edit(message: AnyObject) -> list[FieldError]:
            try:
                edit_labels(message.metadata, request.set, request.remove, request.overwrite)
            except EditRefused as error:
                raise forbidden_by_state(f"{target}: {error}") from None
            call.stores(message.metadata.namespace, message.ByteSize())
            return validate(message)

        rewritten = await self._objects.rewrite(target, edit)
        return LabelResponse(object=wrap(rewritten.message), changed=rewritten.changed)

    async def scale(self, request: ScaleRequest, call: Call) -> ScaleResponse:
        target = self._objects.target(request.key)
        judge = self._judge(call)
        world = await judge.world_of(target.kind.message())
        expected = request.current_replicas if request.HasField("current_replicas") else None
        before = 0

        def edit(message: AnyObject) -> list[FieldError]:
            nonlocal before
            old = type(message).FromString(message.SerializeToString())
            try:
                before = scale(message, request.replicas, expected)
            except EditRefused as error:
                raise forbidden_by_state(f"{target}: {error}") from None
            judge.refuse_update(str(target), old, message, world)
            call.stores(message.metadata.namespace, message.ByteSize())
            return validate(message)

        rewritten = await self._objects.rewrite(target, edit)
        return ScaleResponse(object=wrap(rewritten.message), changed=rewritten.changed, previous_replicas=before)

    def _judge(self, call: Call) -> ObjectJudge:
        return ObjectJudge(self._guard, call.caller, call.name, self._objects, self._admission, call.stores)

    async def _edit_node(self, name: str, change: NodeEdit) -> tuple[Node, bool]:
        target: CallTarget = self._objects.target_of(NODE, "", name)

        def edit(message: AnyObject) -> list[FieldError]:
            assert isinstance(message, Node)
            try:
                change(message)
            except EditRefused as error:
                raise forbidden_by_state(f"{target}: {error}") from None
            return validate(message)

        # Who cordons and taints may be making room.
        rewritten = await self._objects.rewrite(target, edit, goes_on=True)
        assert isinstance(rewritten.message, Node)
        return rewritten.message, rewritten.changed
