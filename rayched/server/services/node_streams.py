"""Streams from this replica to the agents of nodes. Agents dial, so they need no open port, and may stand behind a firewall.

    agent ── Attend ──▶ replica                 it waits for offers; its registration proves that the node is its own, and has to
                                                be in force before each of them
    agent ◀─ offer of a session ── replica      a client wants something of a pod of the node
    agent ── Serve, with that session ──▶ replica          one call a session carries frames both ways
    agent ◀─ that session has hung up ── replica           the client has left, which a call that nobody reads does not tell

A session's name cannot be guessed and is used once. Nothing is kept of what passes: a frame is read when the one before it has
been taken, so the connection's own windows are all that a slow reader fills.

Owner: the event loop.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from rayched.api.kinds import NODE
from rayched.server.errors import ApiFailure, Code, forbidden_by_state, not_now, over_limit, superseded
from rayched.server.objects import Objects, read_entry
from rayched.server.rpc import Call
from rayched.server.services.incarnations import Incarnations
from rayched.server.services.watch_fence import NodeWatchFence
from rayched.server.watching.open_streams import OpenStreams, shutting_down
from rayched.server.watching.watch_hub import WatchHub
from rayched.store.keys import ObjectKey
from rayched.v1.core_pb2 import Node
from rayched.v1.storage_pb2 import AgentRecord
from rayched.v1.streams_pb2 import AgentFrame, AttendRequest, ReplicaFrame, StreamOffer

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_AGENT_POLL_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 0.5
_LIMIT_RETRY_SECONDS: Final = 2.0
_PROGRAMS: Final = ("exec", "port_forward")


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of one replica."""

    a_replica: int = 1_000
    a_node: int = 64
    kept: float = 0.25
    """So much of both is for exec and port-forward alone, which logs that are followed and top would keep out otherwise."""
    frame_bytes: int = 256 << 10
    """Of what clients send in one message."""
    attend_seconds: float = 2.0
    """So long an agent that has just begun is waited for."""
    join_seconds: float = 5.0
    idle_seconds: float = 4 * 3600.0
    """An exec or a port-forward on which nothing passes ends."""


class AgentLink:
    """One session with an agent."""

    def __init__(self, node: str, subject: str) -> None:
        self.session = secrets.token_hex(16)
        self.done = asyncio.Event()
        self.has_ended = False
        """The agent has said so."""
        self._node = node
        self._subject = subject
        self._call: Call | None = None
        self._joined = asyncio.Event()

    def join(self, call: Call) -> bool:
        """False: it was joined before."""
        if self._call is not None:
            return False
        self._call = call
        self._joined.set()
        return True

    async def joined(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._joined.wait()
        except TimeoutError:
            raise not_now(f"{self._subject}: the agent of node {self._node} does not answer", _RETRY_SECONDS) from None

    async def read(self) -> AgentFrame | None:
        """None: it ended well. Raises what the agent failed with, and ABORTED where it was cut off."""
        assert self._call is not None
        frame: AgentFrame | None = await self._passed(self._call.read())
        if frame is None:
            raise self._cut_off()
        if not frame.HasField("end"):
            return frame
        self.has_ended = True
        if frame.end.code == Code.RESOURCE_EXHAUSTED.value[0]:
            raise over_limit(frame.end.message, _LIMIT_RETRY_SECONDS)
        if frame.end.code:
            raise ApiFailure(_CODES.get(frame.end.code, Code.UNKNOWN), frame.end.message)
        return None

    async def write(self, frame: ReplicaFrame) -> None:
        """Waits while the agent does not read."""
        assert self._call is not None
        await self._passed(self._call.write(frame))

    async def _passed(self, work: Awaitable[AgentFrame | None]) -> AgentFrame | None:
        """A call that has ended says so as if the task that uses it were cancelled."""
        task = asyncio.current_task()
        assert task is not None
        try:
            return await work
        except asyncio.CancelledError:
            if task.cancelling():
                raise
        except grpc.aio.UsageError:
            pass
        raise self._cut_off()

    def _cut_off(self) -> ApiFailure:
        return ApiFailure(Code.ABORTED, f"{self._subject}: the agent of node {self._node} was cut off in the middle")


class _Offers:
    """What one agent is still to be told, oldest first. No more of it waits than streams to the node were open."""

    def __init__(self) -> None:
        self._waiting: dict[str, StreamOffer] = {}
        self._changed = asyncio.Event()
        self._is_over = False

    def offer(self, session: str) -> None:
        self._waiting[session] = StreamOffer(session=session)
        self._changed.set()

    def hang_up(self, session: str) -> None:
        """Its client has left: an offer that was not told is withdrawn."""
        if self._waiting.pop(session, None) is None:
            self._waiting[session] = StreamOffer(hung_up=session)
            self._changed.set()

    def end(self) -> None:
        self._is_over = True
        self._changed.set()

    async def next(self) -> StreamOffer | None:
        """None: it is another agent's turn."""
        while not self._is_over:
            if self._waiting:
                return self._waiting.pop(next(iter(self._waiting)))
            self._changed.clear()
            await self._changed.wait()
        return None


@dataclass(slots=True, eq=False)
class _Attendance:
    """An agent that waits for offers."""

    incarnation: int
    offers: _Offers = field(default_factory=_Offers)


class NodeStreams:
    """All streams of one replica to agents."""

    def __init__(self, objects: Objects, hub: WatchHub, limits: StreamLimits | None = None) -> None:
        self.objects = objects
        self.limits = limits or StreamLimits()
        self._hub = hub
        self._agents: dict[str, _Attendance] = {}
        self._links: dict[str, AgentLink] = {}
        self._of_node: Counter[str] = Counter()
        self._open = OpenStreams()

    @property
    def nodes(self) -> list[str]:
        """Whose agents attend."""
        return sorted(self._agents)

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """A stream, which ends when the replica stops."""
        await self._open.run(work, shutting_down)

    async def close(self) -> None:
        await self._open.close()

    async def first_of(self, call: Call) -> Any:
        """The first message of a caller's stream; None: there is none. Who says nothing is not waited for."""
        try:
            async with asyncio.timeout(self.limits.join_seconds):
                return await call.read()
        except TimeoutError:
            raise ApiFailure(Code.DEADLINE_EXCEEDED, f"no message came within {self.limits.join_seconds:g} s") from None

    # ----------------------------------------------------------------------------------------------------------- agents

    async def attend(self, request: AttendRequest, call: Call) -> None:
        await self._refuse_stranger(request)
        await self.run(lambda: self._attended(request, call))

    async def serve(self, call: Call) -> None:
        first: AgentFrame | None = await self.first_of(call)
        link = self._links.get(first.session) if first is not None else None
        if link is None or not link.join(call):
            raise ApiFailure(Code.NOT_FOUND, "nobody waits for this session any more")
        await link.done.wait()

    async def _refuse_stranger(self, request: AttendRequest) -> None:
        subject = str(self.objects.target_of(NODE, "", request.node))
        entry = await self.objects.store.get(self.objects.keys.agent(request.node))
        if (
            entry is None
            or entry.mod_revision != request.incarnation
            or AgentRecord.FromString(entry.value).agent_id != request.agent_id
        ):
            raise superseded(subject, request.incarnation)

    async def _attended(self, request: AttendRequest, call: Call) -> None:
        before = self._agents.get(request.node)
        if before is not None:
            before.offers.end()
        agent = self._agents[request.node] = _Attendance(request.incarnation)
        target = self.objects.target_of(NODE, "", request.node)
        fence = NodeWatchFence(Incarnations(self.objects), target, request.incarnation)
        try:
            await call.write(StreamOffer())
            while (offer := await agent.offers.next()) is not None:
                # It was let in a while ago, and a session is for whoever has the node now.
                await fence.check(self._hub)
                await call.write(offer)
        finally:
            if self._agents.get(request.node) is agent:
                del self._agents[request.node]

    # ---------------------------------------------------------------------------------------------------------- clients

    @asynccontextmanager
    async def to_node(self, node: str, subject: str, frame: ReplicaFrame) -> AsyncIterator[AgentLink]:
        """A session with the agent of a node, which has got the first frame. Raises ApiFailure."""
        self._check_limits(node, subject, frame.WhichOneof("frame") or "")
        # Counted from here on, so that who waits for an agent that is away does not cost more than is allowed either.
        link = AgentLink(node, subject)
        self._links[link.session] = link
        self._of_node[node] += 1
        is_offered = False
        try:
            agent = await self._agent(node, subject)
            is_offered = True
            agent.offers.offer(link.session)
            await link.joined(self.limits.join_seconds)
            await link.write(frame)
            yield link
        finally:
            link.done.set()
            del self._links[link.session]
            self._of_node[node] -= 1
            if not self._of_node[node]:
                del self._of_node[node]
            # The agent may attend anew since, as another incarnation.
            present = self._agents.get(node)
            if present is not None and is_offered and not link.has_ended:
                present.offers.hang_up(link.session)

    def _check_limits(self, node: str, subject: str, kind: str) -> None:
        limits = self.limits
        share = 1.0 if kind in _PROGRAMS else 1.0 - limits.kept
        a_replica, a_node = math.ceil(limits.a_replica * share), math.ceil(limits.a_node * share)
        if len(self._links) >= a_replica:
            text = f"{subject}: {a_replica} streams to nodes are open through this replica; ask another one"
            raise over_limit(text, _LIMIT_RETRY_SECONDS)
        if self._of_node[node] >= a_node:
            which = "" if share == 1.0 else ", for logs and use"
            text = f"{subject}: {a_node} streams to node {node} are open, and no more are allowed{which}"
            raise over_limit(text, _LIMIT_RETRY_SECONDS)

    async def _agent(self, node: str, subject: str) -> _Attendance:
        """The one that has the node now."""
        ends_at = time.monotonic() + self.limits.attend_seconds
        while True:
            record = await self.objects.store.get(self.objects.keys.agent(node))
            if record is None:
                raise forbidden_by_state(f"{subject}: node {node} has no agent that runs pods")
            agent = self._agents.get(node)
            if agent is not None and agent.incarnation == record.mod_revision:
                return agent
            if time.monotonic() >= ends_at:
                text = f"{subject}: the agent of node {node} has no stream to this replica{self._condition(node)}"
                raise not_now(text, _RETRY_SECONDS)
            await asyncio.sleep(_AGENT_POLL_SECONDS)

    def _condition(self, node: str) -> str:
        entry = self._hub.find(ObjectKey(NODE.name, "", node))
        found = read_entry(entry).message if entry is not None else None
        if not isinstance(found, Node):
            return ""
        return next(
            (f"; the node's Ready is {one.status}: {one.message}" for one in found.status.conditions if one.type == "Ready"), ""
        )
