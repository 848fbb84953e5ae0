"""What one reader of the page sees, in however many windows: usage, the scheduler's figures, leaders, Events.

    nodes           what a replica has in memory, then their watch from there
    usage           GetAllocatedResources twice a second: the nodes where it changed
    scheduler       GetSchedulerStatus once a second
    leader          WatchLeader, and GetLeader of each replica every two seconds for the writes that were fenced
    Events          a list, then their watch; those of a reader's own namespaces where they may not see all

What the reader may not see is denied by the replica, and not shown: `denied` has it, and what was known of it is forgotten. Where
the reader's credential counts no more the feed is over, and streams of it end.

It is followed while somebody looks, and half a minute longer; a gateway whose page nobody opens asks for nothing. What breaks
begins anew: nothing here is a truth.

Owner: the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final

import grpc

from rayched.api import kinds
from rayched.api.columns import event_time
from rayched.client.async_client import AsyncClient
from rayched.client.errors import ApiError
from rayched.client.watching import EventType
from rayched.page.histories import LeaderTimeline, Sample, StatusHistory
from rayched.page.recent_events import RecentEvents
from rayched.page.usage_columns import Amounts, UsageColumns
from rayched.v1.core_pb2 import Event, Node
from rayched.v1.services_pb2 import GetSchedulerStatusResponse

_log = logging.getLogger(__name__)

STATUS_SECONDS: Final = 1.0
USAGE_SECONDS: Final = 0.5
"""Between two looks at what pods take up."""
REPLICAS_SECONDS: Final = 2.0
"""Between two looks at each replica."""
IDLE_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 1.0
_DENIED_AGAIN_SECONDS: Final = 10.0
"""Until it is asked for again what the reader may not see, or did not see then."""
_ANSWER_SECONDS: Final = 2.0
"""How long a replica may take to say how the scheduler is doing before readers are told that none answers."""
_ALL: Final = frozenset({""})
"""Namespaces: all of them."""
NAMESPACES_MAX: Final = 16
"""Whose Events are followed for a reader who may not see all: the first ones by name."""
_ABOUT_THE_READER: Final = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_TOPIC_OF: Final = {
    "_follow_nodes": "usage",
    "_follow_allocated": "usage",
    "_follow_status": "status",
    "_follow_leader": "leader",
    "_follow_events": "events",
}


class ClusterFeed:
    """See the module. Readers stand in a `with watched()` while they look."""

    def __init__(
        self, client: AsyncClient, clock: Callable[[], float], replicas: Callable[[], Iterable[AsyncClient]] = tuple
    ) -> None:
        """`clock` gives Unix seconds. `replicas`: for each of those that are known now what asks it alone."""
        self._client = client
        self._clock = clock
        self._replicas = replicas
        self._readers = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: asyncio.TimerHandle | None = None
        self._whole = asyncio.Event()
        """The columns have been whole once."""
        self.over = ""
        """Why the reader is nobody any more; "": they are somebody."""
        self._begin()

    def _begin(self) -> None:
        """As nobody has looked yet."""
        self.usage = UsageColumns()
        self._whole.clear()
        self.has_nodes = False
        """All of them have been seen once."""
        self.has_allocated = False
        """So has what pods take up on each."""
        self._node_went = False
        """Since what pods take up was asked for last."""
        self.history = StatusHistory()
        self.timeline = LeaderTimeline()
        self.events = RecentEvents()
        self._events_in: frozenset[str] = _ALL
        self.status: GetSchedulerStatusResponse | None = None
        self.sample: Sample | None = None
        self.samples = 0
        self.problem = ""
        """Why what is shown is old; "" where it is not."""
        self.since = self._clock()
        self.denied: frozenset[str] = frozenset()
        """Topics of streaming.py that the reader may not see."""

    @property
    def has_usage(self) -> bool:
        """The columns are whole."""
        return self.has_nodes and self.has_allocated

    @property
    def is_followed(self) -> bool:
        return bool(self._tasks)

    async def pause(self, seconds: float) -> None:
        """So long, or until there is usage where there was none."""
        if self._whole.is_set():
            await asyncio.sleep(seconds)
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._whole.wait(), seconds)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        self._readers += 1
        if not self._tasks:
            self._begin()
            follow = (
                self._follow_nodes,
                self._follow_allocated,
                self._follow_status,
                self._follow_leader,
                self._follow_replicas,
                self._follow_events,
            )
            self._tasks = [asyncio.create_task(self._again(one)) for one in follow]
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._ending = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._stop)

    async def close(self) -> None:
        tasks = self._stop()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stop(self) -> list[asyncio.Task[None]]:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        return tasks

    # ---------------------------------------------------------------------------------------------------------- private

    async def _again(self, follow: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await follow()
            except ApiError as error:
                _log.info("the page begins anew with %s: %s", follow.__name__.strip("_"), error)
                if error.code is grpc.StatusCode.UNAUTHENTICATED:
                    self.over = error.message
                    return
                if error.code is grpc.StatusCode.PERMISSION_DENIED:
                    self._deny(follow.__name__)
                    await asyncio.sleep(_DENIED_AGAIN_SECONDS)
            except Exception as error:
                # A reader is told; the others' pictures go on.
                self.problem = "internal error; the gateway's log has the cause"
                _log.error("%s failed: %s", follow.__name__.strip("_"), error, exc_info=error)
            await asyncio.sleep(_AGAIN_SECONDS)

    def _deny(self, follow: str) -> None:
        """Forgets what was known, from when it was allowed."""
        self.denied |= {_TOPIC_OF[follow]}
        match follow:
            case "_follow_nodes":
                self.usage.forget_nodes()
                self.has_nodes = False
            case "_follow_allocated":
                self.usage.see_all_allocated({})
                self.has_allocated = False
            case "_follow_status":
                self.status, self.sample, self.history = None, None, StatusHistory()
            case "_follow_events":
                self.events = RecentEvents()
            case "_follow_leader":
                self.timeline = LeaderTimeline()

    def _tell_usage(self) -> None:
        if self.has_usage:
            self.denied -= {"usage"}
            self._whole.set()

    async def _follow_nodes(self) -> None:
        self.has_nodes = False
        self.usage.forget_nodes()
        revision = 0
        async with aclosing(self._client.cached(kinds.NODE)) as present:
            async for event in present:
                revision = event.revision
                if isinstance(event.object, Node):
                    self.usage.see_node(event.object)
        self.has_nodes = True
        self._tell_usage()
        async with self._client.watch(kinds.NODE, start_revision=revision + 1) as events:
            async for event in events:
                if not isinstance(event.object, Node):
                    continue
                if event.type is EventType.DELETED:
                    self.usage.forget_node(event.object.metadata.name)
                    self._node_went = True
                else:
                    self.usage.see_node(event.object)

    async def _follow_allocated(self) -> None:
        """One look after another: an answer has all that is new, however much changed meanwhile."""
        position, resources = "", self.usage.extended
        everything: dict[str, Amounts] | None = None
        while True:
            if self._node_went or resources != self.usage.extended:
                # Nothing is told of nodes that are gone, so what is known of them would stay.
                self._node_went, position, resources = False, "", self.usage.extended
            try:
                found = await self._client.allocated_resources(position, resources=resources, timeout_seconds=_ANSWER_SECONDS)
            except ApiError as error:
                if error.code in _ABOUT_THE_READER:
                    raise
                # What is shown stays. That nobody answers is told by whoever follows the status.
                await asyncio.sleep(USAGE_SECONDS)
                continue
            if resources != self.usage.extended:
                # What came is in the order of other columns.
                continue
            columns = (found.milli_cpu, found.memory_bytes, found.pods, *(column.amounts for column in found.others))
            amounts = zip(found.nodes, zip(*columns, strict=True), strict=True)
            if found.begins_anew:
                everything = {}
            if everything is None:
                for name, taken in amounts:
                    self.usage.see_allocated(name, taken)
            else:
                everything.update(amounts)
                if not found.more:
                    self.usage.see_all_allocated(everything)
                    everything = None
                    self.has_allocated = True
                    self._tell_usage()
            self.usage.revision = found.revision
            position = found.position
            if not found.more:
                await asyncio.sleep(USAGE_SECONDS)

    async def _follow_status(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                self.status = await self._client.scheduler_status(timeout_seconds=_ANSWER_SECONDS)
            except ApiError as error:
                if error.code in _ABOUT_THE_READER:
                    raise
                self.history.miss()
                self.problem = str(error)
            else:
                self.sample = self.history.see(self.status, self._clock())
                self.samples += 1
                self.problem = ""
                self.denied -= {"status"}
            await asyncio.sleep(max(0.1, STATUS_SECONDS - (loop.time() - began)))

    async def _follow_leader(self) -> None:
        async with self._client.watch_leader() as leaders:
            async for leader in leaders:
                self.denied -= {"leader"}
                self.timeline.see(leader.holder, leader.epoch, leader.acquired_at_ms / 1000, self._clock())

    async def _follow_replicas(self) -> None:
        while True:
            await asyncio.gather(*(self._count_fenced(replica) for replica in self._replicas()))
            await asyncio.sleep(REPLICAS_SECONDS)

    async def _count_fenced(self, replica: AsyncClient) -> None:
        # One that does not answer tells it later, or nobody will hear of it. It is not asked in the reader's name.
        with suppress(ApiError):
            found = await replica.leader(timeout_seconds=_ANSWER_SECONDS)
            self.timeline.see_fenced(found.answered_by, sum(found.replica.fenced_writes.values()), self._clock())

    async def _follow_events(self) -> None:
        namespaces = _ALL
        try:
            await self._follow_events_in(namespaces)
        except ApiError as error:
            if error.code is not grpc.StatusCode.PERMISSION_DENIED:
                raise
            namespaces = await self._own_namespaces()
            if not namespaces:
                raise
        if namespaces != _ALL:
            await self._follow_events_in(namespaces)

    async def _own_namespaces(self) -> frozenset[str]:
        """Those to which the reader is bound."""
        found = await self._client.who_am_i()
        bound = {namespace for binding in found.bindings for namespace in binding.namespaces}
        return frozenset(sorted(bound - {"*"})[:NAMESPACES_MAX])

    async def _follow_events_in(self, namespaces: frozenset[str]) -> None:
        """Returns when the reader is bound to others."""
        follow = [self._follow_events_of(namespace, namespaces) for namespace in sorted(namespaces)]
        if namespaces != _ALL:
            follow.append(self._until_bound_to_others(namespaces))
        tasks = [asyncio.ensure_future(one) for one in follow]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()

    async def _until_bound_to_others(self, namespaces: frozenset[str]) -> None:
        while await self._own_namespaces() == namespaces:
            await asyncio.sleep(_DENIED_AGAIN_SECONDS)

    async def _follow_events_of(self, namespace: str, namespaces: frozenset[str]) -> None:
        """One of them."""
        listing = await self._client.list_all(kinds.EVENT, namespace=namespace)
        self.denied -= {"events"}
        if self._events_in != namespaces:
            # What is known may be of namespaces that the reader may not see any more.
            self._events_in, self.events = namespaces, RecentEvents()
        for item in sorted((item for item in listing.objects if isinstance(item, Event)), key=event_time):
            self.events.see(item)
        async with self._client.watch(kinds.EVENT, namespace=namespace, start_revision=listing.revision + 1) as events:
            async for event in events:
                if isinstance(event.object, Event) and event.type is not EventType.DELETED:
                    self.events.see(event.object)
