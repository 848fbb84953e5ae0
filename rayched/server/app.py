"""ApiServer: all services of one replica on one gRPC port, from start to graceful stop, in one asyncio loop.

It starts without etcd and without a leader: calls say UNAVAILABLE and health NOT_SERVING until this replica has read the
cluster's state, made sure of the system's namespaces, and is of use. It makes sure of these again and again, for etcd may be
wiped or restored meanwhile; `problem` says when they are not there. A server whose feed fails is of no use any more: `failed`
tells, and whoever runs it ends it. The feed of the hub has a connection of its own, so that a
large list never delays it.

Stopping: `announce_stop` turns health off, so that clients go elsewhere; `stop` ends the streams with UNAVAILABLE and the
revision to go on from, lets calls under way finish for a moment, and closes everything. Between the two the replica gives up
the lead.

Binds to loopback only, unless told otherwise: there is no authentication yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import grpc.aio
import tenacity
from grpc_health.v1 import health_pb2
from prometheus_client import Metric

from leader.channel import open_aio_channel, open_channel
from rayched.api.defaulting import default
from rayched.api.kinds import EVENT, NAMESPACE, POD, wrap
from rayched.api.services import DESCRIPTORS
from rayched.api.well_known_taints import DefaultTolerations
from rayched.server.admission.admission import Admission
from rayched.server.admission.attempt_delays import AttemptDelays
from rayched.server.admission.creation import Creator
from rayched.server.admission.deletion import SYSTEM_NAMESPACES, Deleter
from rayched.server.admission.write_gate import WriteGate
from rayched.server.edge.connection_sweeper import sweeping
from rayched.server.edge.edge import Edge, EdgePorts
from rayched.server.edge.edge_metrics import edge_metrics
from rayched.server.edge.grpc_options import server_options
from rayched.server.edge.limits import EdgeLimits
from rayched.server.http.api_metrics import api_metrics
from rayched.server.http.health import SERVICES, Health
from rayched.server.objects import Objects, lost_write, timestamp_now
from rayched.server.ports import LeadershipPort, SchedulerPort
from rayched.server.rpc import handler_of
from rayched.server.services.admin_service import AdminService
from rayched.server.services.eviction_service import EvictionService
from rayched.server.services.leader_service import LeadershipService, SchedulingService
from rayched.server.services.node_service import NodeService
from rayched.server.services.node_streams import NodeStreams
from rayched.server.services.reflection_service import REFLECTION, ReflectionService
from rayched.server.services.stream_services import streaming_services
from rayched.server.services.submission_service import SubmissionService
from rayched.server.services.watch_service import WatchLimits, WatchService, WatchSource
from rayched.server.watching.changes import EventEncoder
from rayched.server.watching.history import History
from rayched.server.watching.watch_feed import WatchFeed
from rayched.server.watching.watch_hub import HubLimits, WatchHub
from rayched.store.calls import Deadlines
from rayched.store.codec import encode
from rayched.store.entries import Change
from rayched.store.following import ClusterChanges
from rayched.store.io.async_client import AsyncStoreClient
from rayched.store.keys import Keys, ObjectKey
from rayched.store.space import SpaceGate
from rayched.store.transactions import Committed, Conflict, GuardedPut
from rayched.v1.core_pb2 import Namespace

_log = logging.getLogger(__name__)

_CALLS_GRACE_SECONDS: Final = 1.0
_NAMESPACES_SECONDS: Final = 5.0
"""Between two looks at the system's namespaces; a list is looked at at once."""
_STORE_DEADLINES: Final = Deadlines(read_seconds=1.0, page_seconds=2.5, write_seconds=2.0, patience_seconds=1.5)
"""A call that needs one answer of etcd knows within three seconds that there is none."""
_HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"]


class ListenError(Exception):
    """The server cannot listen where it was told to; one line."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where an ApiServer listens and where its store is."""

    listen_address: str
    """host:port; port 0 lets the system choose."""
    etcd_endpoints: Sequence[str]
    keys: Keys = field(default_factory=Keys)
    version: str = ""
    allow_remote: bool = False
    """Listen on other addresses than loopback as well."""
    hub: HubLimits = field(default_factory=HubLimits)
    watch: WatchLimits = field(default_factory=WatchLimits)
    tolerations: DefaultTolerations = field(default_factory=DefaultTolerations)
    gate: SpaceGate = field(default_factory=SpaceGate)
    """Refuses what is new before etcd's space is used up."""
    problems: Callable[[], Sequence[str]] = tuple
    """What whoever asks for the leader should know, one line each."""
    edge: EdgeLimits = field(default_factory=EdgeLimits)
    ports: EdgePorts = field(default_factory=EdgePorts)
    """Who callers are, and what they may."""


class ApiServer:
    """One replica's API. Create, start and stop it in the same event loop."""

    def __init__(self, options: ServerOptions, leadership: LeadershipPort, scheduler: SchedulerPort) -> None:
        self._options = options
        self._leadership = leadership
        self._scheduler = scheduler
        self._health = Health()
        self._tasks: set[asyncio.Task[None]] = set()
        self._serves = False
        self._running: _Running | None = None
        self.address = options.listen_address
        """host:port; with the real port once started."""

    async def start(self) -> None:
        """Returns when the port is open. Raises ListenError."""
        host, port = _listen_address(self._options)
        running = _Running(self._options, self._leadership, self._scheduler)
        server = running.server
        reflected = (*SERVICES.values(), _HEALTH.full_name, REFLECTION.full_name)
        services = [
            *((DESCRIPTORS[name], service) for name, service in running.services.items()),
            (_HEALTH, self._health),
            (REFLECTION, ReflectionService(reflected)),
        ]
        for descriptor, service in services:
            server.add_generic_rpc_handlers((handler_of(descriptor, service, running.gate, running.edge),))
        self._health.starting()
        try:
            bound = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError:
            bound = 0
        if not bound:
            await running.close()
            raise ListenError(f"cannot listen on {host}:{port}: the port is in use, or the address is not of this machine")
        self.address = f"{host}:{bound}"
        self._running = running
        running.sources.start()
        await server.start()
        self._spawn(self._stay_useful(running))
        self._spawn(sweeping(running.edge, host.strip("[]"), bound))
        self._spawn(self._watch_feed(running))

    def problem(self) -> str | None:
        """None, or why it cannot serve the cluster's state now; from any thread."""
        running = self._running
        if running is None:
            return "the API is not started"
        feed = running.sources.cluster().feed
        if feed.failed.is_set():
            return "the watch of etcd has failed"
        if not feed.synced.is_set():
            return "the API has not read the cluster yet"
        missing = running.missing_namespaces()
        return f"namespaces {', '.join(missing)} are not there yet" if missing else None

    async def failed(self) -> None:
        """Returns when the feed has failed, after which nothing helps but a new process."""
        assert self._running is not None
        await self._running.sources.cluster().feed.failed.wait()

    @property
    def n_objects(self) -> int:
        """How many the cluster has, as far as it was read; from any thread."""
        running = self._running
        return 0 if running is None else running.sources.cluster().feed.hub.n_objects

    def is_there(self, key: ObjectKey, create_revision: int) -> bool:
        """Whether the object with this key, created at this revision, is there as far as was read; from any thread."""
        running = self._running
        entry = None if running is None else running.sources.cluster().feed.hub.find(key)
        return entry is not None and entry.create_revision == create_revision

    def changes(self) -> ClusterChanges:
        """Where this process follows the cluster; once started."""
        assert self._running is not None
        return self._running.sources.cluster().feed

    def metrics(self) -> list[Metric]:
        """What the API counts, as of now. In the event loop."""
        return [] if self._running is None else self._running.metrics()

    async def announce_stop(self) -> None:
        """Health turns NOT_SERVING for good; calls are still served."""
        self._health.shutting_down()

    async def stop(self) -> None:
        """Idempotent; returns within about three seconds."""
        running, self._running = self._running, None
        if running is None:
            return
        await self.announce_stop()
        await running.watch.close()
        await running.streams.close()
        await running.leadership.close()
        await running.server.stop(_CALLS_GRACE_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await running.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.create_task(work))

    async def _stay_useful(self, running: _Running) -> None:
        """Health turns SERVING when the state is there. Where namespaces are missing then or later, they are made."""
        feed = running.sources.cluster().feed
        await feed.synced.wait()
        while True:
            feed.listed.clear()
            if running.missing_namespaces():
                running.ready.clear()
                await _make_namespaces(running.objects)
            running.ready.set()
            if not self._serves:
                self._serves = True
                self._health.synced(self._leadership.leads)
                self._spawn(self._follow_lead())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_NAMESPACES_SECONDS):
                    await feed.listed.wait()

    async def _follow_lead(self) -> None:
        async for _ in self._leadership.changes():
            self._health.leading(self._leadership.leads)

    async def _watch_feed(self, running: _Running) -> None:
        await running.sources.cluster().feed.failed.wait()
        self._health.blind()


class _Sources:
    """The hub of the cluster's objects, and that of events once somebody asks for it."""

    def __init__(
        self, options: ServerOptions, store: AsyncStoreClient, aio_channel: Any, encoder: EventEncoder, delays: AttemptDelays
    ) -> None:
        self._options = options
        self._store = store
        self._aio_channel = aio_channel
        self._encoder = encoder
        self._feed_channel = open_channel(options.etcd_endpoints)
        self._cluster = self._source(options.keys.cluster_prefix, delays.changed)
        self._events: WatchSource | None = None
        self._failed: list[WatchSource] = []

    def start(self) -> None:
        self._cluster.feed.start()

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
        return await self._store.revision()

    async def close(self) -> None:
        for source in (self._cluster, self._events, *self._failed):
            if source is not None:
                await source.feed.stop()
        self._feed_channel.close()

    def _source(self, prefix: bytes, changed: Callable[[Sequence[Change]], None] | None = None) -> WatchSource:
        keys = self._options.keys
        hub = WatchHub(keys.parse, self._encoder, self._options.hub)
        return WatchSource(WatchFeed(self._feed_channel, prefix, hub, changed), History(self._aio_channel, keys, prefix))


class _Running:
    """What a started server is made of."""

    def __init__(self, options: ServerOptions, leadership: LeadershipPort, scheduler: SchedulerPort) -> None:
        self.ready = asyncio.Event()
        self._channel = open_aio_channel(options.etcd_endpoints)
        self.gate = gate = WriteGate()
        self.edge = Edge(options.edge, options.ports)
        delays = AttemptDelays(options.keys.prefix(POD), gate.large.tried, time.monotonic)
        store = AsyncStoreClient(self._channel, _STORE_DEADLINES, self.gate)
        encoder = EventEncoder()
        self.sources = _Sources(options, store, self._channel, encoder, delays)
        self.objects = Objects(store, options.keys, options.gate)
        hub = self.sources.cluster().feed.hub
        admission = Admission(hub, self.objects, self.ready, options.tolerations)
        self.creator = creator = Creator(self.objects, admission)
        deleter = Deleter(self.objects)
        self.watch = WatchService(self.sources, encoder, options.watch)
        self.streams = NodeStreams(self.objects, hub)
        self.leadership = LeadershipService(leadership, options.version, options.problems)
        self.services: dict[str, object] = {
            "Submission": SubmissionService(self.objects, admission, creator, deleter),
            "Eviction": EvictionService(self.objects, deleter),
            "Watch": self.watch,
            "Nodes": NodeService(self.objects, self.watch),
            "Admin": AdminService(self.objects),
            "Leadership": self.leadership,
            "Scheduling": SchedulingService(leadership, scheduler),
            **streaming_services(self.streams),
        }
        self.server: Any = grpc.aio.server(options=server_options(options.edge))

    def missing_namespaces(self) -> list[str]:
        """Of the system's, as the hub knows them; from any thread."""
        hub = self.sources.cluster().feed.hub
        return [name for name in SYSTEM_NAMESPACES if hub.find(ObjectKey(NAMESPACE.name, "", name)) is None]

    def metrics(self) -> list[Metric]:
        counted = api_metrics(self.creator.counts, self.watch.streams, self.sources.cluster().feed.hub, self.gate)
        return [*counted, *edge_metrics(self.edge)]

    async def close(self) -> None:
        await self.sources.close()
        await self._channel.close()


def _listen_address(options: ServerOptions) -> tuple[str, int]:
    host, _, port = options.listen_address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ListenError(f"listen address {options.listen_address!r}: want host:port")
    if not options.allow_remote and not _is_loopback(host):
        raise ListenError(
            f"listen address {options.listen_address!r}: is not loopback; there is no authentication, so that must be asked for"
        )
    return host, int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return False


async def _make_namespaces(objects: Objects) -> None:
    """The system's namespaces, where they are not there yet; tried until etcd takes them."""
    async for attempt in tenacity.AsyncRetrying(wait=tenacity.wait_random_exponential(0.1, 2.0), before_sleep=_log_retry):
        with attempt:
            await _make_namespaces_once(objects)


async def _make_namespaces_once(objects: Objects) -> None:
    writes = []
    for name in SYSTEM_NAMESPACES:
        namespace = Namespace()
        namespace.metadata.name = name
        namespace.metadata.uid = f"namespace-{name}"
        namespace.metadata.generation = 1
        namespace.metadata.creation_timestamp.CopyFrom(timestamp_now())
        default(namespace)
        writes.append(GuardedPut(objects.keys.object_key(NAMESPACE, "", name), 0, encode(wrap(namespace))))
    for write, outcome in zip(writes, await objects.store.send(None, writes), strict=True):
        if not isinstance(outcome, Committed | Conflict):
            raise lost_write(outcome, f"key {write.key.decode()}")


def _log_retry(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome is not None else None
    _log.warning("cannot create the system's namespaces yet: %s", error)
