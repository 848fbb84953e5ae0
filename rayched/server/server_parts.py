"""What a started ApiServer is made of: services, the edge before them, the hubs behind them, and their connections to etcd.

The feeds of the hubs and of the role bindings have a connection of their own, so that a large list never delays them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor
from prometheus_client import Metric

from leader.channel import open_aio_channel, open_channel
from rayched.api.kinds import EVENT, NAMESPACE, POD
from rayched.api.services import DESCRIPTORS
from rayched.server.access_feed import AccessFeed
from rayched.server.admission.admission import Admission
from rayched.server.admission.attempt_delays import AttemptDelays
from rayched.server.admission.creation import Creator
from rayched.server.admission.deletion import SYSTEM_NAMESPACES, Deleter
from rayched.server.admission.write_gate import WriteGate
from rayched.server.audit_recorder import AuditRecorder
from rayched.server.call_guard import CallGuard
from rayched.server.edge.edge import Edge, EdgePorts
from rayched.server.edge.edge_metrics import edge_metrics
from rayched.server.edge.grpc_options import server_options
from rayched.server.http.api_metrics import api_metrics, audit_metrics
from rayched.server.http.health import HEALTH, Health
from rayched.server.http.http_readers import HttpReaders
from rayched.server.objects import Objects
from rayched.server.ports import LeadershipPort, SchedulerPort
from rayched.server.server_options import ServerOptions
from rayched.server.services.access_service import AccessService
from rayched.server.services.admin_service import AdminService
from rayched.server.services.eviction_service import EvictionService
from rayched.server.services.leader_service import LeadershipService, SchedulingService
from rayched.server.services.node_service import NodeService
from rayched.server.services.node_streams import NodeStreams
from rayched.server.services.reflection_service import REFLECTION, ReflectionService
from rayched.server.services.replica_state import replica_state
from rayched.server.services.stream_services import streaming_services
from rayched.server.services.submission_service import SubmissionService
from rayched.server.services.watch_service import WatchService, WatchSource
from rayched.server.watching.changes import EventEncoder
from rayched.server.watching.history import History
from rayched.server.watching.watch_feed import WatchFeed
from rayched.server.watching.watch_hub import WatchHub
from rayched.store.calls import Deadlines
from rayched.store.entries import Change
from rayched.store.io.async_client import AsyncStoreClient
from rayched.store.keys import ObjectKey
from rayched.v1.services_pb2 import ReplicaState

SERVED: Final[Mapping[str, ServiceDescriptor]] = {**DESCRIPTORS, "Health": HEALTH, "ServerReflection": REFLECTION}
"""Services by name: those of the API, and what gRPC's own tools ask for."""
_STORE_DEADLINES: Final = Deadlines(read_seconds=1.0, page_seconds=2.5, write_seconds=2.0, patience_seconds=1.5)
"""A call that needs one answer of etcd knows within three seconds that there is none."""


class EtcdSources:
    """The hub of the cluster's objects, that of events once somebody asks for it, and who may what."""

    def __init__(
        self,
        options: ServerOptions,
        store: AsyncStoreClient,
        aio_channel: Any,
        encoder: EventEncoder,
        delays: AttemptDelays,
        guard: CallGuard,
    ) -> None:
        self._options = options
        self._store = store
        self._aio_channel = aio_channel
        self._encoder = encoder
        self._feed_channel = open_channel(options.etcd_endpoints)
        self._cluster = self._source(options.keys.cluster_prefix, delays.changed)
        self._events: WatchSource | None = None
        self._failed: list[WatchSource] = []
        self._access = AccessFeed(self._feed_channel, options.keys, guard, self._cluster.feed.failed)

    def start(self) -> None:
        self._cluster.feed.start()
        self._access.start()

    def cluster(self) -> WatchSource:
        return self._cluster

    def events(self) -> WatchSource:
        if self._events is None or self._events.feed.failed.is_set():
            failed = self._events
            if failed is not None:
                self._failed.append(failed)
            self._events = self._source(self._options.keys.prefix(EVENT))
            self._events.feed.start()
        return self._events

    async def revision(self) -> int:
        return await self._store.revision(self._options.keys.cluster_prefix)

    async def close(self) -> None:
        for source in (self._cluster, self._events, *self._failed):
            if source is not None:
                await source.feed.stop()
        await self._access.stop()
        self._feed_channel.close()

    def _source(self, prefix: bytes, changed: Callable[[Sequence[Change]], None] | None = None) -> WatchSource:
        keys = self._options.keys
        hub = WatchHub(keys.parse, self._encoder, self._options.hub)
        return WatchSource(WatchFeed(self._feed_channel, prefix, hub, changed), History(self._aio_channel, keys, prefix))


class ServerParts:
    """Of one server. Create and close it in its event loop."""

    def __init__(self, options: ServerOptions, leadership: LeadershipPort, scheduler: SchedulerPort, health: Health) -> None:
        self._options = options
        self.ready = asyncio.Event()
        self._channel = open_aio_channel(options.etcd_endpoints)
        self.gate = gate = WriteGate()
        self.guard = guard = options.guard()
        tls = options.tls
        judge = None if tls is None else tls.judge
        self.edge = Edge(options.edge, EdgePorts(guard.identify, guard.authorize, judge, guard.check))
        self.readers = HttpReaders(self.edge, guard)
        self.audit = None if options.audit is None else AuditRecorder(options.audit)
        delays = AttemptDelays(options.keys.prefix(POD), gate.large.tried, time.monotonic)
        store = AsyncStoreClient(self._channel, _STORE_DEADLINES, self.gate)
        encoder = EventEncoder()
        self.sources = EtcdSources(options, store, self._channel, encoder, delays, guard)
        self.objects = Objects(store, options.keys, options.gate)
        hub = self.sources.cluster().feed.hub
        admission = Admission(hub, self.objects, self.ready, options.tolerations)
        self.creator = creator = Creator(self.objects, admission)
        deleter = Deleter(self.objects)
        self.watch = WatchService(self.sources, encoder, options.watch)
        self.streams = NodeStreams(self.objects, hub)
        self.leadership = LeadershipService(leadership, options.version, self._state, options.problems)
        self.services: dict[str, object] = {
            "Submission": SubmissionService(self.objects, admission, creator, deleter, guard),
            "Eviction": EvictionService(self.objects, deleter),
            "Watch": self.watch,
            "Nodes": NodeService(self.objects, self.watch),
            "Admin": AdminService(self.objects, admission, guard),
            "Access": AccessService(self.objects, guard.authorizer, guard.tokens, guard.revoked, options.signer),
            "Leadership": self.leadership,
            "Scheduling": SchedulingService(leadership, scheduler, None if tls is None else tls.forwards),
            "Health": health,
            "ServerReflection": ReflectionService([service.full_name for service in SERVED.values()]),
            **streaming_services(self.streams),
        }
        self.server: Any = grpc.aio.server(options=server_options(options.edge))

    def missing_namespaces(self) -> list[str]:
        """Of the system's, as the hub knows them; from any thread."""
        hub = self.sources.cluster().feed.hub
        return [name for name in SYSTEM_NAMESPACES if hub.find(ObjectKey(NAMESPACE.name, "", name)) is None]

    def _state(self) -> ReplicaState:
        return replica_state(self.sources.cluster().feed.hub.revision, self._options.tls, time.time())

    def metrics(self) -> list[Metric]:
        counted = api_metrics(self.creator.counts, self.watch.streams, self.sources.cluster().feed.hub, self.gate)
        return [*counted, *edge_metrics(self.edge), *audit_metrics(None if self.audit is None else self.audit.writer)]

    async def close(self) -> None:
        await self.sources.close()
        await self._channel.close()
