"""Certificates that are exchanged all the time, and one identity that calls far more often than it may, while faults are played.

    before the faults     others' answers are timed, without the flood and with it
    until their end       all certificates are issued anew every ROTATION_SECONDS; the flood goes on

Whoever floods may make FLOOD_RATE writes a second, and tries ten times as many. Its calls are dry runs: what is let in writes
nothing. That all other demands of the run are met with certificates that change is judged as without; here are the two that are
about the flood.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import grpc

from rayched.access.identity import Identity, IdentityKind
from rayched.api.kinds import wrap
from rayched.client.client import Client
from rayched.client.contexts import CONTEXT_FILE, CONTEXT_VARIABLE, write_context_file
from rayched.pki.directory import PkiDirectory
from rayched.pki.issuing import leaf_request
from rayched.pki.tls_files import TlsFiles
from rayched.replica.cluster.local_pki import LocalPki
from rayched.v1.access_pb2 import BindingLimits, RoleBinding
from rayched.v1.core_pb2 import Namespace, Pod
from rayched.v1.services_pb2 import SubmitRequest
from tests.chaos.demands import Demands

ROTATION_SECONDS: Final = 20.0
FLOOD_RATE: Final = 20.0
FLOOD_TIMES: Final = 10
SLOWER_MAX: Final = 2.0
NOISE_SECONDS: Final = 0.02
"""What a busy host adds to an answer; what others wait for less than twice of it is not held against the flood."""
_WINDOW_SECONDS: Final = 20.0
_SAMPLES_A_SECOND: Final = 20.0
_FLOODER: Final = "flooder"
_NAMESPACE: Final = "flood"
_STOP_SECONDS_MAX: Final = 10.0
_SPAWN: Final = multiprocessing.get_context("spawn")


class ExchangedCertificates:
    """Those of a stage. A context manager: inside, clients of this process show the administrator's."""

    def __init__(self, directory: Path, replicas: int) -> None:
        self.pki = LocalPki(directory / "pki", replicas)
        self._made = PkiDirectory(directory / "pki")
        self._context = directory / CONTEXT_FILE
        self._stopped = threading.Event()
        self._owned = contextlib.ExitStack()
        self.rotations = 0
        self.failures: list[str] = []

    @property
    def tls(self) -> TlsFiles:
        return self.pki.admin

    def __enter__(self) -> ExchangedCertificates:
        # Clients name their servers; of the context its files count.
        write_context_file(self._context, ["127.0.0.1:1"], self.tls)
        before = os.environ.get(CONTEXT_VARIABLE)
        os.environ[CONTEXT_VARIABLE] = str(self._context)
        self._owned.callback(_restore, before)
        return self

    def __exit__(self, *_: object) -> None:
        self._owned.close()

    def begin(self, client: Client, addresses: Sequence[str], tell: Callable[[str], object]) -> Demands:
        """Times the others, and leaves rotation and flood running until the end."""
        demands = Demands("certificates", tell)
        client.apply(Namespace(api_version="v1", kind="Namespace", metadata={"name": _NAMESPACE}))
        flooder = Identity(self._made.trust_domain, IdentityKind.USER, _FLOODER)
        self._made.issue(leaf_request(flooder.trust_domain, flooder.kind, flooder.name))
        limits = BindingLimits(writes=FLOOD_RATE)
        client.grant(RoleBinding(subject=str(flooder), role="submitter", namespaces=[_NAMESPACE], limits=limits))
        before = waits(client, _WINDOW_SECONDS)
        flood = self._owned.enter_context(_flooding(TlsFiles.within(self._made.place_of(flooder)), addresses))
        beside = waits(client, _WINDOW_SECONDS)
        thread = threading.Thread(target=self._rotate, name="rotation", daemon=True)
        thread.start()
        self._owned.callback(thread.join)
        self._owned.callback(self._stopped.set)
        sent, refused = flood.value("sent"), flood.value("refused")
        demands.at_least("calls of the flood a second", 0.5 * FLOOD_RATE * FLOOD_TIMES, sent / _WINDOW_SECONDS)
        demands.at_least("of the flood refused, share", 0.7, refused / max(1, sent))
        allowed = max(SLOWER_MAX * p99(before), SLOWER_MAX * NOISE_SECONDS)
        demands.at_most(f"p99 of others beside the flood, {p99(before):.3f} s without", round(allowed, 3), p99(beside), " s")
        return demands

    def end(self, demands: Demands) -> None:
        """After the faults."""
        demands.at_least("exchanges of all certificates", 1, self.rotations)
        demands.none("exchanges that failed", self.failures)

    def _rotate(self) -> None:
        while not self._stopped.wait(ROTATION_SECONDS):
            for record in self._made.in_use():
                identity = Identity.parse(record.uri)
                try:
                    self._made.issue(leaf_request(identity.trust_domain, identity.kind, identity.name))
                except Exception as error:
                    self.failures.append(f"{identity}: {error}")
            self.rotations += 1


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(CONTEXT_VARIABLE, None)
    else:
        os.environ[CONTEXT_VARIABLE] = before


def waits(client: Client, seconds: float) -> list[float]:
    """How long answers to somebody else take, rising; seconds."""
    pod, found = _a_pod("default"), []
    ends = time.monotonic() + seconds
    while (began := time.monotonic()) < ends:
        client.submit(pod, dry_run=True)
        found.append(time.monotonic() - began)
        time.sleep(max(0.0, 1.0 / _SAMPLES_A_SECOND - found[-1]))
    return sorted(found)


def p99(rising: Sequence[float]) -> float:
    return rising[min(len(rising) - 1, int(0.99 * len(rising)))]


def _a_pod(namespace: str) -> Pod:
    pod = Pod(api_version="v1", kind="Pod", metadata={"name": "tried", "namespace": namespace})
    pod.spec.containers.add(name="main", image="registry.example/a:1").resources.requests["cpu"].string = "10m"
    return pod


class FloodCounts:
    """What the flood's process has counted."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {"sent": _SPAWN.Value("q", 0), "refused": _SPAWN.Value("q", 0)}

    def value(self, name: str) -> int:
        return int(self._values[name].value)

    def add(self, name: str) -> None:
        with self._values[name].get_lock():
            self._values[name].value += 1


@contextlib.contextmanager
def _flooding(files: TlsFiles, addresses: Sequence[str]) -> Iterator[FloodCounts]:
    """A process of its own, as it would take the time of who measures."""
    counts, stop = FloodCounts(), _SPAWN.Event()
    process = _SPAWN.Process(target=_flood, args=(files, tuple(addresses), counts._values, stop), daemon=True)
    process.start()
    try:
        yield counts
    finally:
        stop.set()
        process.join(_STOP_SECONDS_MAX)
        process.kill()
        process.join()


def _flood(files: TlsFiles, addresses: Sequence[str], values: dict[str, Any], stop: Any) -> None:
    counts = FloodCounts()
    counts._values = values
    request = SubmitRequest(object=wrap(_a_pod(_NAMESPACE)), dry_run=True).SerializeToString()
    rate = FLOOD_RATE * FLOOD_TIMES / len(addresses)
    threads = [threading.Thread(target=_send, args=(files, one, rate, request, counts, stop)) for one in addresses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _send(files: TlsFiles, address: str, rate: float, request: bytes, counts: FloodCounts, stop: Any) -> None:
    """To one replica, at a steady pace. Each connection lives a second, so that it has the certificate in force."""
    while not stop.is_set():
        with contextlib.suppress(OSError):
            credentials = grpc.ssl_channel_credentials(
                files.ca.read_bytes(), files.key.read_bytes(), files.certificate.read_bytes()
            )
            with grpc.secure_channel(address, credentials, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                _send_for_a_second(channel, rate, request, counts)


def _send_for_a_second(channel: grpc.Channel, rate: float, request: bytes, counts: FloodCounts) -> None:
    submit = channel.unary_unary("/rayched.v1.Submission/Submit")
    began = time.monotonic()
    for number in range(int(rate)):
        try:
            submit(request, timeout=1.0)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                counts.add("refused")
        counts.add("sent")
        time.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))
