"""Attacks that cost: memory, processor time, room in etcd, connections, lines of the log. Each is bounded."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import grpc

from benchmarks.processes import resident_bytes
from rayched.api.kinds import wrap
from rayched.v1.services_pb2 import ExplainRequest, LabelRequest, ObjectKey, SubmitRequest, WatchRequest
from tests.listening import listening
from tests.probe.attack import Attack, Shown
from tests.probe.attacks_on_rights import a_pod
from tests.probe.world import SECONDS_MAX, ProbeWorld, beside, path_of

_MIB: Final = 1 << 20
_FLOOD: Final = 100
_WATCHES: Final = 200
_FAT_PODS: Final = 8
_HONEST_SECONDS_MAX: Final = 2.0
"""That another client waits for an answer. A matter of the machine as well."""
_ANY: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1), ("grpc.enable_retries", 0))
_OWN_CONNECTION: Final = (*_ANY, ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_535))


@contextlib.contextmanager
def connection(world: ProbeWorld, role: str) -> Iterator[grpc.Channel]:
    """Of its own."""
    with world.callers.channel(role, _OWN_CONNECTION) as channel:
        yield channel


def _codes(calls: list[Any]) -> Counter[str]:
    return Counter(str(call.exception(timeout=SECONDS_MAX).code().name) if call.exception() else "OK" for call in calls)


def _flood(world: ProbeWorld) -> Shown:
    pod = a_pod("big")
    pod.metadata.annotations["a"] = "x" * (3_900 << 10)
    body = SubmitRequest(object=wrap(pod)).SerializeToString()
    before = resident_bytes(world.pid)
    with beside(world) as honest, connection(world, "submitter") as channel:
        method = channel.unary_unary(path_of("Submission.Submit"))
        packed = [method.future(body, timeout=SECONDS_MAX, compression=grpc.Compression.Gzip) for _ in range(_FLOOD)]
        codes = _codes(packed)
        codes += _codes([method.future(body, timeout=SECONDS_MAX) for _ in range(_FLOOD // 4)])
    grown = (honest.peak - before) / _MIB
    words = f"{dict(codes)}; peak +{grown:.0f} MiB; another's answer within {honest.longest:.1f} s"
    met = "OK" not in codes and grown <= 64 and honest.longest <= _HONEST_SECONDS_MAX and not honest.failures
    return words, met


def _unread_watches(world: ProbeWorld) -> Shown:
    for number in range(_FAT_PODS):
        pod = a_pod(f"fat-{number}")
        pod.metadata.annotations["a"] = f"{number:03}" * (80 << 10)
        pod.spec.scheduling_gates.add(name="example.com/gate")
        world.ask("admin", "Submission.Submit", SubmitRequest(object=wrap(pod)))
    before = resident_bytes(world.pid)
    request = WatchRequest(kind="Pod", namespace="team-a", label_selector="!nothing").SerializeToString()
    with beside(world) as honest, connection(world, "viewer") as channel:
        calls = [channel.unary_stream(path_of("Watch.Watch"))(request) for _ in range(_WATCHES)]
        time.sleep(15.0)
        ended = sum(call.done() for call in calls)
        for call in calls:
            call.cancel()
    grown = (honest.peak - before) / _MIB
    return f"peak +{grown:.0f} MiB, {ended} of {_WATCHES} ended by the server", grown <= 100 and not honest.failures


def _rewritten_pod(world: ProbeWorld) -> Shown:
    pod = a_pod("rewritten")
    pod.metadata.annotations["a"] = "x" * 250_000
    pod.spec.scheduling_gates.add(name="example.com/gate")
    world.ask("admin", "Submission.Submit", SubmitRequest(object=wrap(pod)))
    seconds = 6.0
    ends = time.monotonic() + seconds
    key = ObjectKey(kind="Pod", namespace="team-a", name="rewritten")

    def rewrite(number: int) -> int:
        done = count = 0
        while time.monotonic() < ends:
            count += 1
            request = LabelRequest(key=key, set={f"n{number}": str(count)}, overwrite=True)
            done += world.ask("submitter", "Admin.Label", request)[0] == "OK"
        return done

    with ThreadPoolExecutor(3) as threads:
        done = sum(threads.map(rewrite, range(3)))
    rate = done * 250_000 / seconds / _MIB
    return f"{done} rewrites of 250 KB in {seconds:.0f} s, {rate:.1f} MiB/s", 0 < rate <= 4.0


def _explanations(world: ProbeWorld) -> Shown:
    began = time.monotonic()
    request = ExplainRequest(namespace="team-a", name="pod-2")
    codes = Counter(world.ask("operator", "Scheduling.Explain", request)[0] for _ in range(40))
    seconds = time.monotonic() - began
    return f"{dict(codes)} in {seconds:.1f} s", codes["OK"] <= 3 + seconds and codes["RESOURCE_EXHAUSTED"] > 0


def _costly_pod(world: ProbeWorld) -> Shown:
    pod = a_pod("costly")
    required = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    term = required.node_selector_terms.add()
    for number in range(250):
        term.match_expressions.add(key=f"k{number}", operator="Exists")
    code, said = world.ask("submitter", "Submission.Submit", SubmitRequest(object=wrap(pod)))
    return f"{code}: {said.decode()[:60]}", code == "PERMISSION_DENIED"


def _rays_port(world: ProbeWorld) -> Shown:
    found = [pid for pid in world.tree() if _is_gcs(pid)]
    before, codes = sum(map(resident_bytes, found)), Counter[str]()
    for _, port in listening(found):
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=_ANY) as channel:
            method = channel.unary_unary("/ray.rpc.InternalKVGcsService/InternalKVPut")
            codes += _codes([method.future(b"\x0a" + b"x" * (64 << 20), timeout=SECONDS_MAX)])
    grown = (sum(map(resident_bytes, found)) - before) / _MIB
    return f"{dict(codes)}, +{grown:.0f} MiB", bool(found) and "OK" not in codes and grown <= 160


def _is_gcs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "gcs_server" in Path("/proc", str(pid), "comm").read_text()
    return False


def _dripping(world: ProbeWorld) -> Shown:
    host, _, port = world.http_address.rpartition(":")
    longest, wrong = 0.0, 0
    with contextlib.ExitStack() as owned:
        drips = [owned.enter_context(socket.create_connection((host, int(port)), SECONDS_MAX)) for _ in range(16)]
        for _ in range(10):
            for drip in drips:
                with contextlib.suppress(OSError):
                    drip.sendall(b"GET /metrics HTTP/1.1\r\n")
            began = time.monotonic()
            with closing(http.client.HTTPConnection(world.http_address, timeout=SECONDS_MAX)) as asked:
                asked.request("GET", "/livez")
                wrong += asked.getresponse().status != 200
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.3)
    return f"/livez within {longest:.2f} s, {wrong} wrong answers", longest <= 1.0 and not wrong


def _idle_connections(world: ProbeWorld) -> Shown:
    host, _, port = world.address.rpartition(":")
    opened = []
    with contextlib.ExitStack() as owned:
        for _ in range(500):
            with contextlib.suppress(OSError):
                opened.append(owned.enter_context(socket.create_connection((host, int(port)), 1.0)))
        time.sleep(8.0)
        kept = sum(map(_is_open, opened))
    return f"{kept} of {len(opened)} are there after 8 s", kept <= 64


def _is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _departures(world: ProbeWorld) -> Shown:
    before = world.log_lines()
    request = WatchRequest(kind="Pod", namespace="team-a", label_selector="!nothing").SerializeToString()
    for _ in range(10):
        with connection(world, "viewer") as channel:
            for _ in range(30):
                channel.unary_stream(path_of("Watch.Watch"))(request)
            time.sleep(0.05)
    time.sleep(1.0)
    lines = world.log_lines() - before
    return f"{lines} lines of log for 300 streams", lines <= 10


def _watches_at_once(world: ProbeWorld) -> Shown:
    request = WatchRequest(kind="Pod", namespace="team-a", label_selector="!nothing").SerializeToString()
    with connection(world, "submitter") as channel:
        calls = [channel.unary_stream(path_of("Watch.Watch"))(request) for _ in range(500)]
        time.sleep(3.0)
        codes = Counter("open" if not call.done() else str(call.code().name) for call in calls)
        for call in calls:
            call.cancel()
    return f"{dict(codes)}", not codes["CANCELLED"] and codes["open"] > 0


ATTACKS: Final = (
    Attack("F4", f"{_FLOOD} packed and {_FLOOD // 4} plain requests of 3.9 MiB", "3.7 GB, waits of 17 s", "+64 MiB, 2 s", _flood),
    Attack("F5", f"{_WATCHES} watches that nobody reads", "1 GiB", "+100 MiB", _unread_watches),
    Attack("F7", "a pod of 250 KB rewritten by three", "19 MB/s into etcd", "4 MiB/s", _rewritten_pod),
    Attack("F8", "40 explanations at once", "scheduling stood still", "one a second", _explanations),
    Attack("F9", "a pod of 250 expressions", "50 to 180 ms a decision", "refused to a submitter", _costly_pod),
    Attack("F10", "64 MiB to Ray's port", "1.2 GB for 100 MiB", "refused, +160 MiB", _rays_port),
    Attack("F11", "16 dripping HTTP connections", "no /livez", "/livez within 1 s", _dripping),
    Attack("F12", "500 idle connections", "all kept", "64 kept", _idle_connections),
    Attack("F14", "300 streams that are left", "15,000 lines for 900", "10 lines", _departures),
    Attack("F19", "500 watches at once", "some CANCELLED", "none CANCELLED", _watches_at_once),
)
