"""The Nodes service over a model of etcd, in this process: what agents call, without gRPC."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, cast

from rayched.api.identity import node_identity
from rayched.api.kinds import AnyObject, of_message, wrap
from rayched.client.errors import ApiError, api_error, outcome_error
from rayched.server.errors import failure_of, trailers
from rayched.server.objects import Objects
from rayched.server.services.node_service import NodeService
from rayched.store.calls import Lease
from rayched.store.codec import encode
from rayched.store.keys import Keys
from rayched.store.space import SpaceGate
from rayched.v1 import services_pb2 as messages
from rayched.v1.core_pb2 import NodeStatus, Pod
from rayched.v1.services_pb2 import NodeEvent, PodStatusUpdate, RegisterNodeRequest
from rayched.v1.storage_pb2 import Stored
from rayched.v1.workloads_pb2 import Object
from tests.server.api_over_model import ModelOfStore
from tests.server.objects import a_node, a_pod

KEYS = Keys()
BROKEN = b"\xff\xff"


class NodeStore(ModelOfStore):
    """With plain transactions and leases."""

    def __init__(self) -> None:
        super().__init__()
        self._leases = itertools.count(1)

    async def txn(self, request: Any) -> Any:
        happens, self.before_next = self.before_next, lambda: None
        happens()
        return self.model.txn(request)

    async def grant_lease(self, ttl_seconds: int) -> Lease:
        return Lease(next(self._leases), ttl_seconds)


class NodesOverModel:
    """Calls raise ApiError, as the client of a replica does. `identity`: whose calls they are; empty: nobody's in particular."""

    def __init__(self, identity: str = "") -> None:
        self.store = NodeStore()
        self.gate = SpaceGate()
        self.objects = Objects(cast(Any, self.store), KEYS, self.gate)
        self.service = NodeService(self.objects, cast(Any, None))
        self.identity = identity
        self.calls = 0

    # ---- what lies in etcd

    def key_of(self, message: AnyObject) -> bytes:
        metadata = message.metadata
        return KEYS.object_key(of_message(message), metadata.namespace, metadata.name)

    def put(self, message: AnyObject, value: bytes | None = None) -> int:
        return self.store.model.put(self.key_of(message), encode(wrap(message)) if value is None else value)

    def put_pod(self, name: str, node: str, value: bytes | None = None) -> Pod:
        """Its uid is uid-<name>."""
        pod = a_pod(name, namespace="default", node=node, uid=f"uid-{name}")
        self.put(pod, value)
        return pod

    @staticmethod
    def now_ms() -> int:
        """As events have it."""
        return int(time.time() * 1000)

    def stored(self, message: AnyObject) -> Object | None:
        entry = self.store.model.now.get(self.key_of(message))
        return None if entry is None else Stored.FromString(entry.value).object

    def events(self) -> list[Any]:
        """What is stored of the kind Event."""
        now = self.store.model.now
        return [Stored.FromString(entry.value).object.event for key, entry in now.items() if key.startswith(KEYS.events_prefix)]

    # ---- what an agent calls

    def begin(self, request: RegisterNodeRequest) -> messages.RegisterNodeResponse:
        return self._do("register", request)

    def live(self, node: str, incarnation: int, *, timeout_seconds: float | None = None) -> messages.HeartbeatResponse:
        return self._do("heartbeat", messages.HeartbeatRequest(nodes=[node], incarnations={node: incarnation}))

    def report_node(self, node: str, incarnation: int, status: NodeStatus) -> None:
        self._do("update_node_status", messages.UpdateNodeStatusRequest(name=node, status=status, incarnation=incarnation))

    def report_pods(self, node: str, incarnation: int, updates: Sequence[PodStatusUpdate]) -> tuple[ApiError | None, ...]:
        request = messages.UpdatePodStatusRequest(updates=updates, node=node, incarnation=incarnation)
        return tuple(map(outcome_error, self._do("update_pod_status", request).outcomes))

    def report_events(self, node: str, incarnation: int, events: Sequence[NodeEvent]) -> tuple[ApiError | None, ...]:
        request = messages.ReportEventsRequest(node=node, incarnation=incarnation, events=events)
        return tuple(map(outcome_error, self._do("report_events", request).outcomes))

    def _do(self, method: str, request: Any) -> Any:
        self.calls += 1
        call: Callable[[Any, Any], Coroutine[Any, Any, Any]] = getattr(self.service, method)
        try:
            return asyncio.run(
                call(request, cast(Any, SimpleNamespace(identity=self.identity, name=method, concerns=lambda *_, **__: None)))
            )
        except Exception as error:
            failure = failure_of(error, method)
            sent = SimpleNamespace(
                code=lambda: failure.code, details=lambda: failure.message, trailing_metadata=lambda: trailers(failure)
            )
            raise api_error(sent, "the model") from None


def registration(name: str, agent: str, **more: Any) -> RegisterNodeRequest:
    """`agent` empty: a hollow one."""
    return RegisterNodeRequest(node=a_node(name), agent_id=agent, **more)


def identity(node: str) -> str:
    return node_identity(node)
