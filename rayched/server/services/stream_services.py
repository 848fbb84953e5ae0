"""The services of streams.proto: each finds the pod, checks what is wanted of it, and passes frames between client and agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from rayched.api.kinds import POD
from rayched.server.errors import forbidden_by_state, invalid, not_found
from rayched.server.rpc import Call
from rayched.server.services.node_streams import NodeStreams
from rayched.v1.core_pb2 import Pod
from rayched.v1.streams_pb2 import AttendRequest, LogsRequest, ReplicaFrame


def streaming_services(streams: NodeStreams) -> dict[str, object]:
    """By their names."""
    return {
        "Logs": LogsService(streams),
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
        frame = ReplicaFrame(uid=pod.metadata.uid, logs=request)
        async with self._streams.to_node(_node_of(pod), _subject(pod), frame) as link:
            while (answer := await link.read()) is not None:
                await call.write(answer.logs)


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


def _listed(names: Sequence[str]) -> str:
    return f"[{' '.join(names)}]"


def _check_logs(request: LogsRequest) -> None:
    if request.HasField("tail_lines") and request.tail_lines < 0:
        raise invalid(f"tail_lines: found {request.tail_lines}, want 0 or more")
    if request.HasField("limit_bytes") and request.limit_bytes < 1:
        raise invalid(f"limit_bytes: found {request.limit_bytes}, want 1 or more")
    if request.HasField("since_seconds") and not request.since_seconds > 0:
        raise invalid(f"since_seconds: found {request.since_seconds:g}, want more than 0")
    if request.HasField("since_seconds") and request.HasField("since_time"):
        raise invalid("since_seconds, since_time: at most one of them may be given")
