"""The services of streams.proto: each finds the pod, checks what is wanted of it, and passes frames between client and agent."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any, Final, cast

from rayched.api.kinds import POD
from rayched.server.errors import ApiFailure, Code, forbidden_by_state, invalid, not_found
from rayched.server.rpc import Call
from rayched.server.services.node_streams import AgentLink, NodeStreams
from rayched.v1.core_pb2 import Pod
from rayched.v1.streams_pb2 import (
    AttendRequest,
    ExecRequest,
    ExecStart,
    LogsRequest,
    NodeUsage,
    PortForwardRequest,
    PortForwardStart,
    ReplicaFrame,
    StreamChallenge,
    UsageRequest,
    UsageResponse,
)

_ENDED: Final = ("Succeeded", "Failed")
_USAGE_AT_A_TIME: Final = 256
_USAGE_SECONDS: Final = 3.5
_COMMAND_BYTES_MAX: Final = 64 << 10
_SINCE_SECONDS: Final = (0, 253_402_300_800)
"""From the year 1970 to the end of the year 9999, as a time of a log can be written."""
_STAMP_BYTES: Final = 30
"""Of a time in a log."""


def streaming_services(streams: NodeStreams) -> dict[str, object]:
    """By their names."""
    return {
        "Logs": LogsService(streams),
        "Exec": ExecService(streams),
        "PortForward": PortForwardService(streams),
        "Usage": UsageService(streams),
        "AgentStreams": AgentStreamsService(streams),
    }


class AgentStreamsService:
    """What agents call."""

    def __init__(self, streams: NodeStreams) -> None:
        self._streams = streams

    async def attend(self, request: AttendRequest, call: Call) -> None:
        await self._streams.attend(request, call)

    async def serve(self, call: Call) -> None:
        await self._streams.serve(call)


class LogsService:
    """Any replica serves it."""

    def __init__(self, streams: NodeStreams) -> None:
        self._streams = streams

    async def get(self, request: LogsRequest, call: Call) -> None:
        _check_logs(request)
        await self._streams.run(lambda: self._get(request, call))

    async def _get(self, request: LogsRequest, call: Call) -> None:
        pod = await _pod_of(self._streams, request.namespace, request.pod)
        uid = request.resume.uid
        if uid and uid != pod.metadata.uid:
            raise not_found(f"{_subject(pod)} with uid {uid}")
        request.container = _container_of(pod, request.container)
        # Of a pod that has ended nothing more is written, and what has not started never will: an agent that was never asked
        # to run it, since the node refused it, would wait for ever.
        request.follow = request.follow and pod.status.phase not in _ENDED
        frame = ReplicaFrame(uid=pod.metadata.uid, logs=request)
        async with self._streams.to_node(_node_of(pod), _subject(pod), frame) as link:
            while (answer := await link.read()) is not None:
                await call.write(answer.logs)


class ExecService:
    """Any replica serves it."""

    def __init__(self, streams: NodeStreams) -> None:
        self._streams = streams

    async def stream(self, call: Call) -> None:
        await self._streams.run(lambda: self._stream(call))

    async def _stream(self, call: Call) -> None:
        first: ExecRequest | None = await self._streams.first_of(call)
        if first is None or not first.HasField("start"):
            raise invalid("the first request of an exec is its start")
        start: ExecStart = first.start
        if not start.command:
            raise invalid("command: you must specify at least one command for the container")
        if start.ByteSize() > _COMMAND_BYTES_MAX:
            raise invalid(f"command: found {start.ByteSize()} bytes, at most {_COMMAND_BYTES_MAX} are allowed")
        _check_no_token("exec", start.token)
        pod = await _pod_of(self._streams, start.namespace, start.pod)
        if pod.status.phase in _ENDED:
            raise forbidden_by_state(
                f"{_subject(pod)}: cannot exec into a container in a completed pod; current phase is {pod.status.phase}"
            )
        start.container = _container_of(pod, start.container)
        frame = ReplicaFrame(uid=pod.metadata.uid, exec=first)
        async with self._streams.to_node(_node_of(pod), _subject(pod), frame) as link:
            relay = _Relay(call, link, self._streams.limits.frame_bytes, _challenge_of(pod, start.container))
            await relay.run("exec", self._streams.limits.idle_seconds, ReplicaFrame(exec=ExecRequest(end_of_input=True)))


class PortForwardService:
    """Any replica serves it."""

    def __init__(self, streams: NodeStreams) -> None:
        self._streams = streams

    async def stream(self, call: Call) -> None:
        await self._streams.run(lambda: self._stream(call))

    async def _stream(self, call: Call) -> None:
        first: PortForwardRequest | None = await self._streams.first_of(call)
        if first is None or not first.HasField("start"):
            raise invalid("the first request of a port-forward is its start")
        start: PortForwardStart = first.start
        if not 0 < start.port < 1 << 16:
            raise invalid(f"port: found {start.port}, want 1 to 65535")
        _check_no_token("port-forward", start.token)
        pod = await _pod_of(self._streams, start.namespace, start.pod)
        if pod.status.phase != "Running":
            phase = pod.status.phase or "Pending"
            raise forbidden_by_state(
                f"{_subject(pod)}: unable to forward port because pod is not running. Current status={phase}"
            )
        frame = ReplicaFrame(uid=pod.metadata.uid, port_forward=first)
        async with self._streams.to_node(_node_of(pod), _subject(pod), frame) as link:
            relay = _Relay(call, link, self._streams.limits.frame_bytes, _challenge_of(pod, ""))
            end = ReplicaFrame(port_forward=PortForwardRequest(end=True))
            await relay.run("port_forward", self._streams.limits.idle_seconds, end)


class UsageService:
    """Any replica serves it, as far as agents have streams to it."""

    def __init__(self, streams: NodeStreams) -> None:
        self._streams = streams
        self._turns = asyncio.Semaphore(_USAGE_AT_A_TIME)

    async def get_usage(self, request: UsageRequest, _: Call) -> UsageResponse:
        if request.node:
            return UsageResponse(nodes=[await self._usage_of(request.node)])
        nodes = self._streams.nodes
        found = await asyncio.gather(*(self._usage_of(node) for node in nodes), return_exceptions=True)
        response = UsageResponse()
        for node, usage in zip(nodes, found, strict=True):
            if isinstance(usage, NodeUsage):
                response.nodes.append(usage)
            elif isinstance(usage, ApiFailure):
                response.silent.append(node)
            else:
                raise usage
        return response

    async def _usage_of(self, node: str) -> NodeUsage:
        subject = f"Node {node}"
        frame = ReplicaFrame(usage=UsageRequest(node=node))
        try:
            async with asyncio.timeout(_USAGE_SECONDS), self._turns, self._streams.to_node(node, subject, frame) as link:
                answer = await link.read()
        except TimeoutError:
            raise ApiFailure(Code.UNAVAILABLE, f"{subject}: its agent says nothing of what is used") from None
        if answer is None:
            raise ApiFailure(Code.DATA_LOSS, f"{subject}: its agent ended without an answer")
        return answer.usage


class _Relay:
    """Frames of a client and an agent, both ways at once, until the agent ends it."""

    def __init__(self, call: Call, link: AgentLink, frame_bytes: int, challenge: StreamChallenge) -> None:
        """`challenge`: that of the agent, but for its nonce."""
        self._call = call
        self._link = link
        self._frame_bytes = frame_bytes
        self._challenge = challenge
        self._passed_at = time.monotonic()

    async def run(self, field: str, idle_seconds: float, end: ReplicaFrame) -> None:
        """`field`: where frames have what passes. `end`: told to the agent when the client has no more to send."""
        down = asyncio.create_task(self._down(field))
        up = asyncio.create_task(self._up(field, end))
        try:
            waiting: set[asyncio.Task[None]] = {down, up}
            while down in waiting:
                left = self._passed_at + idle_seconds - time.monotonic()
                done, waiting = await asyncio.wait(waiting, timeout=max(left, 0.01), return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if self._passed_at + idle_seconds <= time.monotonic():
                    raise ApiFailure(Code.DEADLINE_EXCEEDED, f"nothing has passed for {idle_seconds:g} s; the stream has ended")
        finally:
            await _ended(down, up)

    async def _down(self, field: str) -> None:
        while (answer := await self._link.read()) is not None:
            response = getattr(answer, field)
            if response.HasField("challenge"):
                # Whatever else the agent says in it: who it is was found out here.
                self._challenge.nonce = response.challenge.nonce
                response.challenge.CopyFrom(self._challenge)
            await self._call.write(response)
            self._passed_at = time.monotonic()

    async def _up(self, field: str, end: ReplicaFrame) -> None:
        while (request := await self._call.read()) is not None:
            if request.ByteSize() > self._frame_bytes:
                raise invalid(f"a message of {request.ByteSize()} bytes, at most {self._frame_bytes} are allowed")
            await self._link.write(ReplicaFrame(**{field: request}))
            self._passed_at = time.monotonic()
        await self._link.write(end)


async def _ended(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)


# -------------------------------------------------------------------------------------------------------------------- pods


async def _pod_of(streams: NodeStreams, namespace: str, name: str) -> Pod:
    read = await streams.objects.get(streams.objects.target_of(POD, namespace, name))
    return cast(Pod, read.message)


def _subject(pod: Pod) -> str:
    return f"Pod {pod.metadata.namespace}/{pod.metadata.name}"


def _node_of(pod: Pod) -> str:
    if not pod.spec.node_name:
        raise forbidden_by_state(f"{_subject(pod)}: does not have a host assigned")
    return pod.spec.node_name


def _container_of(pod: Pod, name: str) -> str:
    """Any container may be named; who names none means the only one."""
    names = [one.name for one in pod.spec.containers]
    if name:
        if name not in (*names, *(one.name for one in pod.spec.init_containers)):
            raise invalid(f"container {name} is not valid for pod {pod.metadata.name}")
        return name
    if len(names) != 1:
        raise invalid(f"a container name must be specified for pod {pod.metadata.name}, choose one of: {_listed(names)}")
    return names[0]


def _challenge_of(pod: Pod, container: str) -> StreamChallenge:
    return StreamChallenge(node=_node_of(pod), uid=pod.metadata.uid, container=container)


def _check_no_token(verb: str, token: str) -> None:
    if token:
        text = "this client sends the token of the node, which goes no further than here; a newer one proves that it knows it"
        raise ApiFailure(Code.PERMISSION_DENIED, f"{verb}: {text}")


def _listed(names: Sequence[str]) -> str:
    return f"[{' '.join(names)}]"


def _check_logs(request: LogsRequest) -> None:
    if request.HasField("tail_lines") and request.tail_lines < 0:
        raise invalid(f"tail_lines: found {request.tail_lines}, want 0 or more")
    if request.HasField("limit_bytes") and request.limit_bytes < 1:
        raise invalid(f"limit_bytes: found {request.limit_bytes}, want 1 or more")
    if request.HasField("since_seconds") and not 0 < request.since_seconds < float("inf"):
        raise invalid(f"since_seconds: found {request.since_seconds:g}, want a finite number above 0")
    if request.HasField("since_time"):
        moment = request.since_time
        if not _SINCE_SECONDS[0] <= moment.seconds < _SINCE_SECONDS[1] or not 0 <= moment.nanos < 1_000_000_000:
            found = f"{moment.seconds} seconds and {moment.nanos} nanoseconds"
            raise invalid(f"since_time: found {found} since 1970, want a time of the years 1970 to 9999")
    if request.HasField("since_seconds") and request.HasField("since_time"):
        raise invalid("since_seconds, since_time: at most one of them may be given")
    if not request.HasField("resume"):
        return
    resume = request.resume
    if resume.attempt < 0:
        raise invalid(f"resume.attempt: found {resume.attempt}, want 0 or more")
    if resume.offset < 0:
        raise invalid(f"resume.offset: found {resume.offset}, want 0 or more")
    for name, stamp in (("begin", resume.begin), ("since", resume.since)):
        if len(stamp) > _STAMP_BYTES:
            raise invalid(f"resume.{name}: found {len(stamp)} bytes, want {_STAMP_BYTES} at most")
