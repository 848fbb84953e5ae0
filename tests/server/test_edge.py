"""The edge with real gRPC: nothing is read before it is settled who calls, whether that may be and whether there is room; clients
in unary form see no difference; what is too much is refused with a reason and a delay."""

from __future__ import annotations

import asyncio
import queue
import socket
import time
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from rayched.access.authorizing import Authorizer
from rayched.access.binding_table import BindingTable
from rayched.access.bindings import ALL_NAMESPACES, RoleBinding
from rayched.access.identity import Identity
from rayched.access.policy import AccessRole
from rayched.api.kinds import wrap
from rayched.client import Client
from rayched.client.errors import ApiError, api_error
from rayched.server.call_guard import INSECURE_ADMIN, CallGuard, insecure_guard, loopback_identity, unauthenticated
from rayched.server.edge.connection_sweeper import ConnectionSweeper
from rayched.server.edge.edge_metrics import edge_metrics
from rayched.server.edge.fairness import PriorityLevel
from rayched.server.edge.limits import CallerLimits, EdgeLimits, RateLimits
from rayched.server.edge.method_traits import REPORT_BYTES_MAX, REQUEST_BYTES_MAX
from rayched.v1 import services_pb2 as messages
from rayched.v1.services_pb2_grpc import SubmissionStub, WatchStub
from tests.server.edge_server import OPTIONS, EdgeServing, edge_serving, guard_of_shown, identity_shown, of_each, refusing_process
from tests.server.objects import a_pod
from tests.server.serving import until

GET = messages.GetRequest(key=messages.ObjectKey(kind="Pod", name="web"))
SUBMIT = "/rayched.v1.Submission/Submit"


@pytest.fixture(scope="module")
def server() -> Iterator[EdgeServing]:
    with edge_serving() as found:
        yield found


def failure(call: Any, *arguments: Any, **options: Any) -> ApiError:
    with pytest.raises(grpc.RpcError) as caught:
        answer = call(*arguments, **{"timeout": 10, **options})
        if not hasattr(answer, "DESCRIPTOR"):
            list(answer)
    return api_error(caught.value, "the server")


def held_gets(server: EdgeServing, count: int, **options: Any) -> list[Any]:
    """Calls under way, all of which have begun."""
    before = len(server.service.begun)
    calls = [server.submission.Get.future(GET, timeout=30, **options) for _ in range(count)]
    until(lambda: len(server.service.begun) == before + count)
    return calls


# ------------------------------------------------------------------------------------------------- before anything is read


def peak_of_refused_calls(mode: str, count: int, size: int) -> float:
    """MiB by which the highest resident memory of a server grows while so many calls are refused."""
    with refusing_process(mode) as (address, peak):

        async def play() -> list[Any]:
            body = messages.SubmitRequest(object=wrap(a_pod("x"))).SerializeToString() + b"\x1a" + b"x" * size
            async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
                call = channel.unary_unary(SUBMIT)
                return await asyncio.gather(*(call(body, timeout=60) for _ in range(count)), return_exceptions=True)

        before = peak()
        outcomes = asyncio.run(play())
        assert {one.code().name for one in outcomes} == {"PERMISSION_DENIED"}
        return peak() - before


@pytest.mark.row("B90")
def test_of_200_refused_calls_nothing_is_held() -> None:
    """F4, B90: what a refused call costs is its window, not its request."""
    assert peak_of_refused_calls("late", 200, 1 << 20) < 40


def test_whoever_reads_first_holds_what_it_refuses() -> None:
    """That the measurement above could fail."""
    assert peak_of_refused_calls("early", 90, 2 << 20) > 100


@pytest.mark.row("B90")
def test_who_may_not_is_refused_before_its_request_is_there() -> None:
    table = BindingTable((RoleBinding(INSECURE_ADMIN, AccessRole.VIEWER, (ALL_NAMESPACES,)),))
    table.listed({})
    silence: queue.Queue[Any] = queue.Queue()
    with edge_serving(guard=CallGuard(Authorizer(table))) as server:
        call = server.channel.stream_unary(SUBMIT)
        with pytest.raises(grpc.RpcError) as caught:
            call(iter(silence.get, None), timeout=10)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        silence.put(None)
        assert server.service.begun == []
        assert server.submission.Get(GET, timeout=10) == messages.GetResponse()
        until(server.is_idle)


def test_an_identity_is_asked_for_once_a_call_and_is_what_limits_go_by() -> None:
    with edge_serving(EdgeLimits(identity=CallerLimits(calls=1)), guard_of_shown()) as server:
        server.hold()
        held = held_gets(server, 1, metadata=(("shown", "a"),))
        assert failure(server.submission.Get, GET, metadata=(("shown", "a"),)).message.startswith(
            f"{identity_shown('a').uri} has 1 calls in flight"
        )
        others = [*held_gets(server, 1, metadata=(("shown", "b"),)), *held_gets(server, 3)]
        server.let_go()
        for call in (*held, *others):
            call.result()
        until(server.is_idle)


def test_a_binding_says_how_much_its_subject_may_have() -> None:
    few = (("shown", "few"),)
    with edge_serving(guard=guard_of_shown(), clock=Clock()) as server:
        server.hold()
        watch = WatchStub(server.channel).Watch(messages.WatchRequest(label_selector="a"), metadata=few)  # type: ignore[no-untyped-call]
        assert next(watch).revision == 1
        again = failure(WatchStub(server.channel).Watch, messages.WatchRequest(label_selector="a"), metadata=few)  # type: ignore[no-untyped-call]
        assert again.message.startswith(f"{identity_shown('few').uri} has 1 watches open")
        server.let_go()
        assert server.submission.Get(GET, timeout=10, metadata=few) == messages.GetResponse()
        error = failure(server.submission.Get, GET, metadata=few)
        assert "makes more than 0.25 calls a second" in error.message and error.retry_after_seconds == 4.0
        for _ in range(100):
            assert server.submission.Get(GET, timeout=10, metadata=(("shown", "a"),)) == messages.GetResponse()
        watch.cancel()
        until(server.is_idle)


def test_an_address_that_shows_wrong_credentials_too_often_is_not_asked_for_a_minute() -> None:
    clock, asked = Clock(), []

    def identity_of(context: Any) -> Identity:
        asked.append(context.peer())
        if not context.invocation_metadata() or ("shown", "right") not in context.invocation_metadata():
            raise unauthenticated("these are wrong")
        return INSECURE_ADMIN

    limits = EdgeLimits(loopback=CallerLimits(wrong_credentials=20.0))
    with edge_serving(limits, CallGuard(insecure_guard().authorizer, identity_of), clock=clock) as server:
        right = (("shown", "right"),)
        for _ in range(20):
            assert failure(server.submission.Get, GET).code is grpc.StatusCode.UNAUTHENTICATED
        error = failure(server.submission.Get, GET, metadata=right)
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and error.retry_after_seconds == pytest.approx(60.0)
        assert error.message.startswith("127.0.0.1 has shown 20 wrong credentials in a minute")
        assert len(asked) == 20 and server.rejected() == {("read", "credentials"): 1}
        clock.now += 60.0
        assert server.submission.Get(GET, timeout=10, metadata=right) == messages.GetResponse()
        clock.now += 60.0
        assert failure(server.submission.Get, GET).code is grpc.StatusCode.UNAUTHENTICATED
        assert server.submission.Get(GET, timeout=10, metadata=right) == messages.GetResponse()
        until(server.is_idle)


# ------------------------------------------------------------------------------------------------- clients see no difference


def test_clients_in_unary_form_work_unchanged(server: EdgeServing) -> None:
    request = messages.SubmitRequest(object=wrap(a_pod("web")))
    size = str(request.ByteSize())
    assert server.submission.Submit(request, timeout=10).warnings == [size]
    assert server.submission.Submit.future(request, timeout=10).result().warnings == [size]
    raw = server.channel.unary_unary(SUBMIT)(request.SerializeToString(), timeout=10)
    assert messages.SubmitResponse.FromString(raw).warnings == [size]
    answer = server.channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=10)
    assert health_pb2.HealthCheckResponse.FromString(answer).status == health_pb2.HealthCheckResponse.SERVING
    watch = WatchStub(server.channel).Watch(messages.WatchRequest(), timeout=10)  # type: ignore[no-untyped-call]
    assert [response.revision for response in watch] == [1, 2, 3]
    assert (
        server.submission.SubmitMany(messages.SubmitManyRequest(objects=[wrap(a_pod("a"))] * 3), timeout=10).results[2].uid == "2"
    )

    async def play() -> None:
        async with grpc.aio.insecure_channel(server.address, options=OPTIONS) as channel:
            stub = SubmissionStub(channel)  # type: ignore[no-untyped-call]
            answers = await asyncio.gather(*(stub.Submit(request, timeout=10) for _ in range(200)))
            assert all(answer.warnings == [size] for answer in answers)
            call = WatchStub(channel).Watch(messages.WatchRequest())  # type: ignore[no-untyped-call]
            assert [response.revision async for response in call] == [1, 2, 3]

    asyncio.run(play())
    until(server.is_idle)


def test_health_and_reflection_are_behind_the_same_edge(server: EdgeServing) -> None:
    stub = health_pb2_grpc.HealthStub(server.channel)
    assert stub.Check(health_pb2.HealthCheckRequest(), timeout=10).status == health_pb2.HealthCheckResponse.SERVING
    name = "rayched.v1.Submission"
    assert (
        stub.List(health_pb2.HealthListRequest(), timeout=10).statuses[name].status == health_pb2.HealthCheckResponse.NOT_SERVING
    )
    assert failure(stub.Check, health_pb2.HealthCheckRequest(service="no")).code is grpc.StatusCode.NOT_FOUND
    large = health_pb2.HealthCheckRequest(service="x" * 70_000)
    assert failure(stub.Check, large).code is grpc.StatusCode.RESOURCE_EXHAUSTED
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=10)
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    server.on_loop(lambda: server.health.synced(True))
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    server.on_loop(server.health.shutting_down)
    server.on_loop(lambda: server.health.synced(True))
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    watch.cancel()
    questions = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    answers = reflection_pb2_grpc.ServerReflectionStub(server.channel).ServerReflectionInfo(questions, timeout=10)
    assert [one.name for answer in answers for one in answer.list_services_response.service] == [name]
    until(server.is_idle)


def test_failures_have_their_codes_and_nobody_is_told_of_the_inside(server: EdgeServing) -> None:
    error = failure(server.submission.Apply, messages.ApplyRequest(object=wrap(a_pod("web"))))
    assert error.code is grpc.StatusCode.INTERNAL and "secret" not in error.message
    raw = server.channel.unary_unary(SUBMIT)
    assert failure(raw, b"\xff").code is grpc.StatusCode.INVALID_ARGUMENT
    assert failure(server.channel.unary_unary("/rayched.v1.Submission/Guess"), b"").code is grpc.StatusCode.UNIMPLEMENTED
    error = failure(server.channel.stream_unary(SUBMIT), iter([]))
    assert (error.code, error.message) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "Submission.Submit: the call came without its request",
    )
    until(server.is_idle)


def test_a_client_that_leaves_or_whose_time_is_over_ends_its_call(server: EdgeServing) -> None:
    for end in ("leave", "deadline"):
        before = server.service.begun.count("delete ended")
        call = server.submission.Delete.future(messages.DeleteRequest(key=GET.key), timeout=0.5 if end == "deadline" else 30)
        until(lambda before=before: server.service.begun.count("delete") == before + 1)  # type: ignore[misc]
        if end == "leave":
            call.cancel()
        else:
            assert call.exception().code() is grpc.StatusCode.DEADLINE_EXCEEDED
        until(lambda before=before: server.service.begun.count("delete ended") == before + 1)  # type: ignore[misc]
    until(server.is_idle)


def test_a_call_without_a_deadline_gets_one_and_a_very_long_one_is_cut() -> None:
    with edge_serving(EdgeLimits(unary_seconds=0.4, unary_seconds_unasked=0.2)) as server:
        for timeout, seconds in ((None, "0.2"), (60, "0.4")):
            with pytest.raises(grpc.RpcError) as caught:
                server.submission.Delete(messages.DeleteRequest(key=GET.key), timeout=timeout)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert caught.value.details() == f"Submission.Delete: not done within {seconds} s, which is all that it is given"
        assert server.service.begun == ["delete", "delete ended"] * 2
        until(server.is_idle)


# --------------------------------------------------------------------------------------------------------------- too much


def sized(size: int) -> bytes:
    """A SubmitRequest of so many bytes, most of them in a field that nobody knows."""
    head = messages.SubmitRequest(object=wrap(a_pod("x"))).SerializeToString()
    filler = size - len(head) - 4
    return head + b"\x7a" + bytes([filler & 0x7F | 0x80, filler >> 7 & 0x7F | 0x80, filler >> 14]) + b"x" * filler


def test_a_request_is_limited_and_the_limit_told(server: EdgeServing) -> None:
    call = server.channel.unary_unary(SUBMIT)
    assert call(sized(REQUEST_BYTES_MAX), timeout=10)
    error = failure(call, sized(REQUEST_BYTES_MAX + 1))
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and error.retry_after_seconds is None
    assert f"{REQUEST_BYTES_MAX + 1} bytes, at most {REQUEST_BYTES_MAX} are allowed" in error.message
    assert failure(call, b"x" * (REPORT_BYTES_MAX + 1)).code is grpc.StatusCode.RESOURCE_EXHAUSTED
    until(server.is_idle)


@pytest.mark.row("B91")
def test_compressed_requests_are_refused(server: EdgeServing) -> None:
    """B91; what gRPC itself would write of each to standard error is turned off in the command's main."""
    request = messages.SubmitRequest(object=wrap(a_pod("web")))
    begun = len(server.service.begun)
    for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        error = failure(server.submission.Submit, request, compression=compression)
        assert error.code is grpc.StatusCode.UNIMPLEMENTED
    assert len(server.service.begun) == begun
    assert server.submission.Submit(request, timeout=10)


def test_headers_are_limited(server: EdgeServing) -> None:
    assert server.submission.Get(GET, timeout=10, metadata=(("x", "y" * 3_000),)) == messages.GetResponse()
    error = failure(server.submission.Get, GET, metadata=(("x", "y" * 9_000),))
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_calls_in_flight_are_limited_for_each_caller_and_in_all() -> None:
    for limits, words in ((of_each(calls=2), "127.0.0.1 has 2 calls in flight"), (EdgeLimits(calls=2), "this replica")):
        with edge_serving(limits) as server:
            server.hold()
            held = held_gets(server, 2)
            error = failure(server.submission.Get, GET)
            assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and error.retry_after_seconds == 1.0
            assert words in error.message and "try again in 1.0 s" in error.message
            server.let_go()
            for call in held:
                call.result()
            assert server.submission.Get(GET, timeout=10) == messages.GetResponse()
            until(server.is_idle)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.row("B95", "B100")
def test_rates_go_by_caller_and_kind_and_time_brings_new_calls() -> None:
    """B95's limit, B100's delay."""
    clock = Clock()
    with edge_serving(of_each(rates=RateLimits(reads=2.0, writes=4.0, burst_seconds=2.0)), clock=clock) as server:
        for _ in range(4):
            server.submission.Get(GET, timeout=10)
        error = failure(server.submission.Get, GET)
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and error.retry_after_seconds == 0.5
        assert "127.0.0.1 makes more than 2 calls a second of this kind (reads)" in error.message
        clock.now += 0.5
        server.submission.Get(GET, timeout=10)
        assert failure(server.submission.Get, GET).retry_after_seconds == 0.5
        # A batch counts as a tenth of its objects; what it has taken beyond the burst is paid for with time.
        server.submission.SubmitMany(messages.SubmitManyRequest(objects=[wrap(a_pod("a"))] * 100), timeout=10)
        assert failure(server.submission.SubmitMany, messages.SubmitManyRequest()).retry_after_seconds == pytest.approx(0.75)
        assert server.rejected() == {("read", "rate"): 2, ("write", "rate"): 1}
        samples = {
            tuple(sample.labels.values()): sample.value
            for family in edge_metrics(server.edge)
            if family.name == "rayched_rejected"
            for sample in family.samples
        }
        assert samples == {("read", "rate"): 2.0, ("write", "rate"): 1.0}
        until(server.is_idle)


@pytest.mark.row("B100")
def test_the_sdk_waits_as_it_is_told_and_gets_everything_in() -> None:
    """B100."""
    rates = RateLimits(writes=20.0, burst_seconds=0.1)
    with edge_serving(of_each(rates=rates)) as server, Client(server.address, timeout_seconds=30.0) as client:
        outcomes = client.submit_many([a_pod(f"pod-{number}") for number in range(300)])
        assert all(one.error is None for one in outcomes)
        assert server.rejected()["write", "rate"] > 0, "else nothing was too much"
        until(server.is_idle)


def test_who_is_on_this_host_and_nobody_has_no_rate_and_no_number_of_calls(server: EdgeServing) -> None:
    async def play() -> None:
        async with grpc.aio.insecure_channel(server.address, options=OPTIONS) as channel:
            stub = SubmissionStub(channel)  # type: ignore[no-untyped-call]
            batch = messages.SubmitManyRequest(objects=[wrap(a_pod("a"))] * 100)
            for _ in range(5):
                await asyncio.gather(*(stub.SubmitMany(batch, timeout=10) for _ in range(40)))

    asyncio.run(play())
    assert server.rejected().get(("write", "rate")) is None
    until(server.is_idle)


def test_a_call_waits_for_its_turn_and_not_for_long() -> None:
    """With five seats reads have one."""
    with edge_serving(of_each(seats=5, waiting=1)) as server:
        server.hold()
        held = held_gets(server, server.edge.gate.queues.share(PriorityLevel.READ))
        while True:
            waiting = server.submission.Get.future(GET, timeout=8)
            time.sleep(0.1)
            if server.edge.gate.queues.waiting(PriorityLevel.READ):
                break
            held.append(waiting)
        error = failure(server.submission.Get, GET)
        assert error.retry_after_seconds is not None and error.retry_after_seconds >= 1.0
        assert "127.0.0.1 has 1 calls waiting (level read)" in error.message
        late = waiting.exception(10)
        assert api_error(late, "").message.startswith("there was no place in time (level read)")
        assert server.rejected() == {("read", "line-full"): 1, ("read", "too-late"): 1}
        server.let_go()
        for call in held:
            call.result()
        until(server.is_idle)


def test_who_sends_slowly_has_no_place_meanwhile() -> None:
    with edge_serving(of_each(seats=5, held_bytes=64 << 20)) as server:
        said: list[queue.Queue[Any]] = [queue.Queue() for _ in range(6)]
        slow = [server.channel.stream_unary(SUBMIT).future(iter(one.get, None), timeout=30) for one in said]
        until(lambda: server.edge.calls == len(slow))
        assert server.submission.Submit(messages.SubmitRequest(object=wrap(a_pod("web"))), timeout=8).uid == "7"
        for one in said:
            one.put(messages.SubmitRequest(object=wrap(a_pod("late"))).SerializeToString())
            one.put(None)
        assert all(messages.SubmitResponse.FromString(call.result()).uid == "7" for call in slow)
        until(server.is_idle)


def test_a_large_object_that_waits_for_its_turn_has_no_place_meanwhile() -> None:
    """With five seats writes have one."""
    large = a_pod("large")
    large.metadata.annotations["a"] = "x" * 1_000_000
    with edge_serving(of_each(seats=5)) as server:
        batch = messages.SubmitManyRequest(objects=[wrap(large)])
        for _ in range(2):
            server.submission.SubmitMany(batch, timeout=10)
        waiting = server.submission.SubmitMany.future(batch, timeout=20)
        until(lambda: server.edge.calls == 1)
        time.sleep(0.2)
        assert server.submission.Submit(messages.SubmitRequest(object=wrap(a_pod("small"))), timeout=10).uid == "7"
        assert not waiting.done()
        waiting.result()
        until(server.is_idle)


@pytest.mark.row("B90")
def test_bytes_are_counted_before_they_are_read() -> None:
    """Four megabytes are counted for a request of which nothing has come; a caller has room for one."""
    with edge_serving(of_each(held_bytes=REPORT_BYTES_MAX)) as server:
        said: queue.Queue[Any] = queue.Queue()
        slow = server.channel.stream_unary(SUBMIT).future(iter(said.get, None), timeout=30)
        until(lambda: server.edge.bytes.held == REPORT_BYTES_MAX)
        error = failure(server.submission.Get, GET, timeout=1.0)
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and error.retry_after_seconds == 1.0
        assert server.rejected() == {("read", "bytes"): 1}
        said.put(messages.SubmitRequest(object=wrap(a_pod("late"))).SerializeToString())
        said.put(None)
        slow.result()
        until(server.is_idle)


def test_answers_that_nobody_takes_are_counted() -> None:
    """A client whose window is used up takes nothing more; further answers are refused, and what it left is given back."""
    narrow = (*OPTIONS, ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_535))
    with edge_serving(of_each(held_bytes=6 << 20)) as server:
        server.service.answer.objects.add().pod.metadata.annotations["a"] = "x" * (2 << 20)
        with grpc.insecure_channel(server.address, options=narrow) as channel:
            stub = WatchStub(channel)  # type: ignore[no-untyped-call]
            server.hold()
            watches = [stub.Watch(messages.WatchRequest(label_selector="a")) for _ in range(3)]
            for watch in watches:
                next(watch)
            answer = SubmissionStub(channel).List(messages.ListRequest(), timeout=10)  # type: ignore[no-untyped-call]
            assert len(answer.objects) == 1
            server.let_go()
            assert all(len(list(watch)) == 2 for watch in watches)
        until(server.is_idle)


def test_watches_are_limited_for_each_caller() -> None:
    with edge_serving(of_each(watches=3, wide_watches=1)) as server:
        server.hold()
        stub = WatchStub(server.channel)  # type: ignore[no-untyped-call]
        wide = stub.Watch(messages.WatchRequest())
        next(wide)
        error = failure(stub.Watch, messages.WatchRequest())
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and "1 watches without a selector" in error.message
        narrow = [stub.Watch(messages.WatchRequest(label_selector="a")) for _ in range(2)]
        for watch in narrow:
            next(watch)
        error = failure(stub.Watch, messages.WatchRequest(label_selector="a"))
        assert "127.0.0.1 has 3 watches open" in error.message
        assert server.rejected() == {("watch", "wide-watches"): 1, ("watch", "watches"): 1}
        wide.cancel()
        until(lambda: len(server.edge.watches_of) == 1)
        again = stub.Watch(messages.WatchRequest())
        assert next(again).revision == 1
        for watch in (*narrow, again):
            watch.cancel()
        until(server.is_idle)


def test_streams_of_a_connection_are_limited_and_unary_calls_are_not() -> None:
    with edge_serving(of_each(streams_a_connection=2)) as server:
        server.hold()
        watches = [WatchStub(server.channel).Watch(messages.WatchRequest()) for _ in range(2)]  # type: ignore[no-untyped-call]
        for watch in watches:
            next(watch)
        error = failure(WatchStub(server.channel).Watch, messages.WatchRequest())  # type: ignore[no-untyped-call]
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED and "has 2 streams open" in error.message
        assert all(server.submission.Submit(messages.SubmitRequest(object=wrap(a_pod("web"))), timeout=10) for _ in range(5))
        with grpc.insecure_channel(server.address, options=OPTIONS) as other:
            again = WatchStub(other).Watch(messages.WatchRequest())  # type: ignore[no-untyped-call]
            assert next(again).revision == 1
            for watch in (*watches, again):
                watch.cancel()
            until(server.is_idle)


def test_connections_with_calls_are_limited_for_each_caller() -> None:
    with edge_serving(of_each(connections=2)) as server:
        server.hold()
        held = held_gets(server, 2)
        with grpc.insecure_channel(server.address, options=OPTIONS) as second:
            other = SubmissionStub(second).Get.future(GET, timeout=30)  # type: ignore[no-untyped-call]
            until(lambda: len(server.service.begun) == 3)
            with grpc.insecure_channel(server.address, options=OPTIONS) as third:
                error = failure(SubmissionStub(third).Get, GET)  # type: ignore[no-untyped-call]
                assert "127.0.0.1 has 2 connections with calls" in error.message
            server.let_go()
            for call in (*held, other):
                call.result()
        until(server.is_idle)


@pytest.mark.row("B93")
def test_an_address_keeps_its_oldest_connections_and_no_more() -> None:
    """B93."""
    with edge_serving() as server:
        host, port = server.address.split(":")
        sweeper = ConnectionSweeper(int(port), lambda address: 3 if address == "127.0.0.1" else 1_000)
        assert server.submission.Get(GET, timeout=10) == messages.GetResponse()
        assert sweeper.sweep().total() == 0
        many = [socket.create_connection((host, int(port)), timeout=30) for _ in range(40)]
        others = [socket.create_connection((host, int(port)), timeout=30, source_address=("127.0.0.2", 0)) for _ in range(4)]
        time.sleep(0.2)  # until gRPC has accepted them all
        assert sweeper.sweep() == {"127.0.0.1": 38}
        assert all(closed(one, 30.0) for one in many[2:])
        assert not any(closed(one, 0.05) for one in (*many[:2], *others))
        assert sweeper.sweep().total() == 0
        assert server.submission.Get(GET, timeout=10) == messages.GetResponse(), "the first of all"
        for one in (*many, *others):
            one.close()


def closed(connection: socket.socket, seconds: float) -> bool:
    connection.settimeout(seconds)
    try:
        while connection.recv(1_000):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True
    return True


@pytest.mark.row("B93")
def test_idle_connections_of_one_address_are_closed_while_it_goes_on() -> None:
    """B93: at the server, with connections that have begun to speak and then idle."""
    with edge_serving(of_each(connections=5)) as server:
        assert server.submission.Get(GET, timeout=10) == messages.GetResponse()
        host, port = server.address.split(":")
        many = []
        for _ in range(60):
            many.append(socket.create_connection((host, int(port)), timeout=30))
            many[-1].sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        until(lambda: server.rejected().get(("none", "address-connections"), 0) == 56)
        assert all(closed(one, 30.0) for one in many[4:])
        assert not any(closed(one, 0.05) for one in many[:4])
        assert server.submission.Get(GET, timeout=10) == messages.GetResponse()
        for one in many:
            one.close()


@pytest.mark.row("B93")
def test_connections_are_limited_and_those_that_say_nothing_are_closed() -> None:
    """B34 without TLS; B93 as far as all connections go."""
    with edge_serving(EdgeLimits(handshake_seconds=0.5, connections=4)) as server:
        host, port = server.address.split(":")
        silent = [socket.create_connection((host, int(port)), timeout=30) for _ in range(8)]
        assert sum(closed(one, 0.1) for one in silent) >= 3
        assert all(closed(one, 30.0) for one in silent)
        assert server.submission.Get(GET, timeout=10) == messages.GetResponse()
        for one in silent:
            one.close()


class Peers:
    """Notes the connections that calls come on."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def identity_of(self, context: Any) -> Identity:
        self.seen.append(context.peer())
        return loopback_identity(context)

    def guard(self) -> CallGuard:
        return CallGuard(insecure_guard().authorizer, self.identity_of)


def test_a_connection_that_grows_old_loses_no_call_and_no_stream() -> None:
    peers = Peers()
    with edge_serving(EdgeLimits(age_seconds=0.3), peers.guard()) as server:
        server.hold()
        watch = WatchStub(server.channel).Watch(messages.WatchRequest())  # type: ignore[no-untyped-call]
        assert next(watch).revision == 1
        for _ in range(40):
            assert server.submission.Submit(messages.SubmitRequest(object=wrap(a_pod("web"))), timeout=10).uid == "7"
            time.sleep(0.03)
        assert len(set(peers.seen)) > 1
        server.let_go()
        assert [response.revision for response in watch] == [2, 3]
        until(server.is_idle)


def test_a_connection_without_a_call_is_closed_and_made_anew() -> None:
    peers = Peers()
    with edge_serving(EdgeLimits(idle_seconds=0.3), peers.guard()) as server:
        for _ in range(2):
            assert server.submission.Get(GET, timeout=10) == messages.GetResponse()
        time.sleep(1.0)
        assert server.submission.Get(GET, timeout=10) == messages.GetResponse()
        first, second, third = peers.seen
        assert first == second != third
