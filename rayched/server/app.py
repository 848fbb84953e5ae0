"""ApiServer: all services of one replica on one gRPC port, from start to graceful stop, in one asyncio loop.

It starts without etcd and without a leader: calls say UNAVAILABLE and health NOT_SERVING until this replica has read the
cluster's state, made sure of the system's namespaces, and is of use. It makes sure of these again and again, for etcd may be
wiped or restored meanwhile; `problem` says when they are not there. A server whose feed fails is of no use any more: `failed`
tells, and whoever runs it ends it. What it is made of is server_parts.py.

Stopping: `announce_stop` turns health off, so that clients go elsewhere; `stop` ends the streams with UNAVAILABLE and the
revision to go on from, lets calls under way finish for a moment, and closes everything. Between the two the replica gives up
the lead.

With certificates (`ServerTls`) every caller needs one, and the port may be open to others than this host. Without them nothing
proves who calls, and it is on loopback only, unless told otherwise. A second port takes bearer tokens in place of certificates.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from typing import Any, Final

import tenacity
from prometheus_client import Metric

from rayched.access.policy import check_policy
from rayched.api.defaulting import default
from rayched.api.kinds import NAMESPACE, wrap
from rayched.server.admission.deletion import SYSTEM_NAMESPACES
from rayched.server.edge.connection_sweeper import sweeping
from rayched.server.errors import unavailable
from rayched.server.http.api_metrics import certificate_metrics
from rayched.server.http.health import Health
from rayched.server.http.http_endpoint import Request
from rayched.server.objects import Objects, lost_write, timestamp_now
from rayched.server.peers import ServerTls
from rayched.server.ports import LeadershipPort, SchedulerPort
from rayched.server.rpc import handler_of
from rayched.server.server_options import ListenError, ServerOptions, host_and_port, split_listen
from rayched.server.server_parts import SERVED, ServerParts
from rayched.store.codec import encode
from rayched.store.following import ClusterChanges
from rayched.store.keys import ObjectKey
from rayched.store.transactions import Committed, Conflict, GuardedPut
from rayched.v1.core_pb2 import Namespace

_log = logging.getLogger(__name__)

_CALLS_GRACE_SECONDS: Final = 1.0
_NAMESPACES_SECONDS: Final = 5.0
"""Between two looks at the system's namespaces; a list is looked at at once."""


class ApiServer:
    """One replica's API. Create, start and stop it in the same event loop."""

    def __init__(self, options: ServerOptions, leadership: LeadershipPort, scheduler: SchedulerPort) -> None:
        self._options = options
        self._leadership = leadership
        self._scheduler = scheduler
        self._health = Health()
        self._tasks: set[asyncio.Task[None]] = set()
        self._serves = False
        self._running: ServerParts | None = None
        self.address = options.listen_address
        """host:port; with the real port once started."""
        self.token_address = ""
        """The same of the port that takes tokens; "": there is none."""

    async def start(self) -> None:
        """Returns when the port is open. Raises ListenError, and PolicyError where the policy does not fit the API."""
        check_policy(SERVED.values())
        host, port = host_and_port(self._options)
        running = ServerParts(self._options, self._leadership, self._scheduler, self._health)
        server = running.server
        for name, service in running.services.items():
            handler = handler_of(SERVED[name], service, running.gate, running.edge, running.guard, running.audit)
            server.add_generic_rpc_handlers((handler,))
        self._health.starting()
        try:
            place, tls = f"{host}:{port}", self._options.tls
            bound = server.add_insecure_port(place) if tls is None else server.add_secure_port(place, tls.credentials())
        except RuntimeError:
            bound = 0
        if not bound:
            await running.close()
            raise ListenError(f"cannot listen on {host}:{port}: the port is in use, or the address is not of this machine")
        self.address = f"{host}:{bound}"
        token_place = None if tls is None else await self._listen_for_tokens(running, tls)
        self._running = running
        running.sources.start()
        await server.start()
        self._spawn(self._stay_useful(running))
        self._spawn(sweeping(running.edge, host.strip("[]"), bound))
        if token_place is not None:
            self._spawn(sweeping(running.edge, token_place[0].strip("[]"), token_place[1]))
        self._spawn(self._watch_feed(running))
        if tls is not None:
            self._spawn(tls.judge.watch())
            # Gateways show tokens at the other port, too.
            self._spawn(running.guard.watch())
        if running.audit is not None:
            self._spawn(running.audit.watch())

    async def _listen_for_tokens(self, running: ServerParts, tls: ServerTls) -> tuple[str, int] | None:
        """Host and port; None: nobody asked for it. Raises ListenError, and closes the parts then."""
        address = self._options.token_listen_address
        if not address:
            return None
        try:
            host, _ = split_listen(address)
            bound = running.server.add_secure_port(address, tls.token_credentials())
            if bound:
                self.token_address = f"{host}:{bound}"
                return host, bound
        except (ListenError, RuntimeError):
            pass
        await running.close()
        raise ListenError(f"cannot listen for tokens on {address}: the port is in use, or the address is not of this machine")

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
        """Returns when a feed has failed, after which nothing helps but a new process."""
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
        if self._running is None:
            return []
        return [*self._running.metrics(), *certificate_metrics(self._options.tls, time.time())]

    def judge_reader(self, request: Request, path: str) -> None:
        """Who reads over HTTP, where roles are asked for. Raises ApiFailure where they may not. In the event loop."""
        if self._running is None:
            raise unavailable("the API is not started")
        self._running.readers.judge(request, path)

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
        if running.audit is not None:
            running.audit.tell_folded()
        await running.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.create_task(work))

    async def _stay_useful(self, running: ServerParts) -> None:
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

    async def _watch_feed(self, running: ServerParts) -> None:
        await running.sources.cluster().feed.failed.wait()
        self._health.blind()


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
