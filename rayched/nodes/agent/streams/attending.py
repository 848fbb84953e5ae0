"""The agent's end of the streams: one call to each replica that waits for offers, one more for each session that a client opens.

A thread with an event loop of its own: a client that reads slowly waits in its own session, and holds up no other one, nor the
agent's loop. What has to be known of pods is asked of that loop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

import grpc

from rayched.api.stream_proof import NONCE_BYTES
from rayched.client.channels import EndpointChannels
from rayched.client.endpoints import CHANNEL_OPTIONS
from rayched.client.node_agent import NodeAgentClient
from rayched.nodes.agent.agent_settings import AgentSettings
from rayched.nodes.agent.streams.exec_session import ExecSession
from rayched.nodes.agent.streams.log_session import LogSession
from rayched.nodes.agent.streams.port_session import PortSession
from rayched.nodes.agent.streams.refusals import Code, StreamRefusal
from rayched.nodes.agent.streams.replica_stream import HungUp, ReplicaStream, while_heard
from rayched.nodes.agent.streams.targets import StreamTargets
from rayched.nodes.agent.streams.token_gate import TokenGate
from rayched.nodes.agent.streams.usage import usage_sampler
from rayched.v1.streams_pb2 import AgentFrame, AttendRequest, NodeUsage, ReplicaFrame, StreamEnd

SESSIONS_MAX: Final = 64
"""Through all replicas together."""
_KEPT_SESSIONS: Final = 16
"""Of those, for exec and port-forward alone: whoever looks into a node that is in trouble is not kept out by followed logs."""
_READERS: Final = 4
_PAUSE_SECONDS: Final = (0.2, 2.0)
"""Between two attempts to reach a replica: at first, and at most."""
_END_SECONDS: Final = 5.0

_T = TypeVar("_T")

log = logging.getLogger(__name__)


class AgentStreaming:
    """Start it once, stop it once. Nothing is offered before the node is `registered`."""

    def __init__(
        self,
        settings: AgentSettings,
        client: NodeAgentClient,
        targets: StreamTargets,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        """`client` says where replicas are and what is shown to them. `post` runs something in the agent's loop."""
        self._node = settings.node
        self._gate = TokenGate(settings.node, settings.stream_token, partial(secrets.token_bytes, NONCE_BYTES))
        self._sampler = usage_sampler(settings.node, settings.bounds)
        self._sampling = asyncio.Lock()
        self._endpoints = client.endpoints
        self._channels = EndpointChannels(grpc.aio.insecure_channel, grpc.aio.secure_channel, CHANNEL_OPTIONS, client.certificate)
        self._targets = targets
        self._post = post
        self._agent_id = ""
        self._incarnation = 0
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._registered = asyncio.Event()
        self._attending: set[Any] = set()
        self._sessions: dict[str, asyncio.Task[None]] = {}
        self._readers = ThreadPoolExecutor(_READERS, "node-logs")
        self._thread = threading.Thread(target=self._run, name="node-streams", daemon=True)

    def start(self, agent_id: str) -> None:
        self._agent_id = agent_id
        self._thread.start()

    def registered(self, incarnation: int) -> None:
        """From the agent's loop: the node is this agent's, from now on under that number."""
        self._loop.call_soon_threadsafe(self._attend_as, incarnation)

    def stop(self, seconds: float) -> None:
        """Cuts what is open; clients go on at the next agent."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(seconds)
        self._readers.shutdown(wait=False, cancel_futures=True)

    # -------------------------------------------------------------------------------------------------------------- loop

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        attending = [asyncio.create_task(self._attend(endpoint)) for endpoint in self._endpoints]
        await self._stopped.wait()
        tasks = [*attending, *self._sessions.values()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_END_SECONDS)
        for channel in self._channels.take_all():
            await channel.close()

    def _attend_as(self, incarnation: int) -> None:
        self._incarnation = incarnation
        self._registered.set()
        for call in self._attending:
            call.cancel()

    async def _attend(self, endpoint: str) -> None:
        said, pause = "", _PAUSE_SECONDS[0]
        while True:
            await self._registered.wait()
            begun = self._loop.time()
            try:
                why = await self._attended(endpoint)
            except Exception as error:
                # Whatever it was, the next attempt may go better; without one the replica would have no stream for good.
                log.exception("attending a replica has failed")
                why = f"the agent has failed ({type(error).__name__})"
            lasted = self._loop.time() - begun
            pause = _PAUSE_SECONDS[0] if lasted > _PAUSE_SECONDS[1] else min(pause * 2, _PAUSE_SECONDS[1])
            if why != said:
                log.info("replica %s has no stream to node %s now: %s", endpoint, self._node, why)
                said = why
            await asyncio.sleep(pause)

    async def _attended(self, endpoint: str) -> str:
        """Until that ends; why it did."""
        request = AttendRequest(node=self._node, agent_id=self._agent_id, incarnation=self._incarnation)
        for idle in self._channels.take_idle():
            await idle.close()
        call = self._channels.channel(endpoint).use("AgentStreams.Attend").stream(request)
        self._attending.add(call)
        try:
            while (offer := await call.read()) is not grpc.aio.EOF:
                if offer.hung_up in self._sessions:
                    self._sessions[offer.hung_up].cancel()
                if offer.session:
                    self._begin(endpoint, offer.session)
        except grpc.RpcError as error:
            return str(error.details())
        except asyncio.CancelledError:
            # Also what a read says of a call that was cancelled for a new incarnation. The end of the agent cancels the task.
            task = asyncio.current_task()
            if not call.cancelled() or (task is not None and task.cancelling()):
                raise
            return "the node was registered again"
        finally:
            self._attending.discard(call)
            call.cancel()
        return "it has ended the stream"

    # ---------------------------------------------------------------------------------------------------------- sessions

    def _begin(self, endpoint: str, session: str) -> None:
        task = self._sessions[session] = asyncio.create_task(self._serve(endpoint, session))
        task.add_done_callback(lambda _: self._sessions.pop(session))

    async def _serve(self, endpoint: str, session: str) -> None:
        call = self._channels.channel(endpoint).use("AgentStreams.Serve").stream()
        stream = ReplicaStream(call)
        try:
            await stream.write(AgentFrame(session=session))
            first = await stream.read()
            await stream.write(AgentFrame(end=await self._ended(first, stream)))
            await call.done_writing()
            async with asyncio.timeout(_END_SECONDS):
                await stream.until_hung_up()
        except (HungUp, TimeoutError):
            return
        finally:
            stream.close()

    async def _ended(self, first: ReplicaFrame, stream: ReplicaStream) -> StreamEnd:
        """Carries out what is wanted; how that ended."""
        try:
            most = SESSIONS_MAX if first.WhichOneof("frame") in ("exec", "port_forward") else SESSIONS_MAX - _KEPT_SESSIONS
            if len(self._sessions) > most:
                text = f"{most} streams to node {self._node} are open, and no more of this kind are allowed"
                raise StreamRefusal(Code.RESOURCE_EXHAUSTED, text)
            await self._carry_out(first, stream)
        except StreamRefusal as refusal:
            return StreamEnd(code=refusal.code, message=refusal.message)
        except HungUp:
            raise
        except Exception as error:
            log.exception("a stream of node %s has failed", self._node)
            return StreamEnd(
                code=Code.DATA_LOSS.value[0], message=f"the agent has failed ({type(error).__name__}); its log says why"
            )
        return StreamEnd()

    async def _carry_out(self, first: ReplicaFrame, stream: ReplicaStream) -> None:
        match first.WhichOneof("frame"):
            case "logs":
                session = LogSession(first.uid, first.logs, stream, self._readers)
                await while_heard(session.run(self._targets, self._ask), stream)
            case "exec":
                start = first.exec.start
                await self._gate.let_in(first, stream)
                target = await self._ask(lambda: self._targets.running(first.uid, start.namespace, start.pod, start.container))
                await while_heard(ExecSession(start, target, stream).run(), stream)
            case "port_forward":
                port = first.port_forward.start
                await self._gate.let_in(first, stream)
                await self._ask(lambda: self._targets.check_pod(first.uid, port.namespace, port.pod))
                await while_heard(PortSession(port, stream).run(), stream)
            case "usage":
                await stream.write(AgentFrame(usage=await self._usage()))
            case what:
                raise StreamRefusal(
                    Code.UNIMPLEMENTED, f"the agent of node {self._node} does not know {what}; it is older than this replica"
                )

    async def _usage(self) -> NodeUsage:
        pods = await self._ask(self._targets.with_processes)
        async with self._sampling:
            return await self._loop.run_in_executor(None, self._sampler.usage, pods)

    async def _ask(self, question: Callable[[], _T]) -> _T:
        """The answer of the agent's loop."""
        answer: Future[_T] = Future()

        def ask() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        self._post(ask)
        return await asyncio.wrap_future(answer)
