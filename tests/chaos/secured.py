"""Certificates that are exchanged all the time, and one identity that calls far more often than it may, while faults are played.

    before the faults     others' answers are timed, without the flood and with it
    until their end       all certificates are issued anew every ROTATION_SECONDS; the flood goes on

Whoever floods may make WRITES_A_SECOND at each replica, as each counts for itself, and tries ten times what all of them let in
together. Its calls are dry runs: what is let in writes nothing. That all other demands of the run are met with certificates that
change is judged as without; here are those that are about the flood. What has to be refused of it follows from how many calls it
has really made, and from what the replicas may have let in meanwhile.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from rayched.server.edge.limits import RateLimits
from rayched.v1.access_pb2 import BindingLimits, RoleBinding
from rayched.v1.core_pb2 import Namespace, Pod
from rayched.v1.services_pb2 import SubmitRequest
from tests.chaos.demands import Demands

ROTATION_SECONDS: Final = 20.0
WRITES_A_SECOND: Final = 6.0
"""Of the flooding identity at one replica: ten times as many at each are a flood that a busy host still sends."""
FLOOD_TIMES: Final = 10
SENT_SHARE_MIN: Final = 0.7
"""Of the flood: a sender on the host of those who refuse it does not get all of it out."""
REFUSED_SHARE_MIN: Final = 0.7
"""Of what is beyond what may be let in: the rest had no answer in its second."""
SERVED_SHARE_MIN: Final = 0.5
"""Of what an identity may do: a flood does not take from itself what it is granted."""
IN_FLIGHT_MAX: Final = 1
"""Calls to one replica that are counted after the window and were let in before it, or the other way round."""
SLOWER_MAX: Final = 2.0
NOISE_SECONDS: Final = 0.02
"""What a busy host adds to an answer; what others wait for less than twice of it is not held against the flood."""
_WINDOW_SECONDS: Final = 20.0
_SAMPLES_A_SECOND: Final = 20.0
_FLOODER: Final = "flooder"
_NAMESPACE: Final = "flood"
_STOP_SECONDS_MAX: Final = 10.0
_BEGUN_SECONDS_MAX: Final = 30.0
_SPAWN: Final = multiprocessing.get_context("spawn")


class ExchangedCertificates:
    """Those of a stage. A context manager: inside, clients of this process show the administrator's."""

    def __init__(self, directory: Path, replicas: int) -> None:
        self.pki = LocalPki(directory / "pki", replicas)
        self._made = PkiDirectory(directory / "pki")
        self._context = directory / CONTEXT_FILE
        self._stopped = threading.Event()
        self._rotation = threading.Thread(target=self._rotate, name="rotation", daemon=True)
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
        limits = BindingLimits(writes=WRITES_A_SECOND)
        client.grant(RoleBinding(subject=str(flooder), role="submitter", namespaces=[_NAMESPACE], limits=limits))
        before = waits(client, _WINDOW_SECONDS)
        flood = self._owned.enter_context(_flooding(TlsFiles.within(self._made.place_of(flooder)), addresses))
        flood.wait_until_begun()
        began, at_first = time.monotonic(), flood.seen()
        beside = waits(client, _WINDOW_SECONDS)
        seconds, at_last = time.monotonic() - began, flood.seen()
        self._rotation.start()
        self._owned.callback(self._stop_rotation)
        judge_flood(demands, len(addresses), seconds, at_last.since(at_first))
        allowed = max(SLOWER_MAX * p99(before), SLOWER_MAX * NOISE_SECONDS)
        demands.at_most(f"p99 of others beside the flood, {p99(before):.3f} s without", round(allowed, 3), p99(beside), " s")
        return demands

    def end(self, demands: Demands) -> None:
        """After the faults."""
        self._stop_rotation()
        demands.at_least("exchanges of all certificates", 1, self.rotations)
        demands.none("exchanges that failed", self.failures)

    def _stop_rotation(self) -> None:
        """An exchange that is under way is finished."""
        self._stopped.set()
        self._rotation.join()

    def _rotate(self) -> None:
        """The first at once, so that the shortest session has one."""
        while True:
            for record in self._made.in_use():
                identity = Identity.parse(record.uri)
                try:
                    self._made.issue(leaf_request(identity.trust_domain, identity.kind, identity.name))
                except Exception as error:
                    self.failures.append(f"{identity}: {error}")
            self.rotations += 1
            if self._stopped.wait(ROTATION_SECONDS):
                return


@dataclass(frozen=True, slots=True)
class FloodSeen:
    """What became of a flood's calls: `served` and `refused` are what replicas said, the others had no answer in time."""

    sent: int
    served: int
    refused: int

    def since(self, before: FloodSeen) -> FloodSeen:
        return FloodSeen(self.sent - before.sent, self.served - before.served, self.refused - before.refused)


def judge_flood(demands: Demands, replicas: int, seconds: float, seen: FloodSeen) -> None:
    """Of a flood that went on before and after these seconds."""
    together = replicas * WRITES_A_SECOND
    wanted = SENT_SHARE_MIN * FLOOD_TIMES * together
    granted = f"{replicas} x {WRITES_A_SECOND:g} are granted"
    demands.at_least(f"calls of the flood a second, {granted}", wanted, seen.sent / seconds)
    # What a replica has saved up from before is let in as well.
    most = together * (seconds + RateLimits().burst_seconds) + replicas * IN_FLIGHT_MAX
    demands.at_most("of the flood let in", round(most), seen.served)
    demands.at_least("of the flood let in, as it is granted", round(SERVED_SHARE_MIN * together * seconds), seen.served)
    demands.at_least("of the flood refused", round(REFUSED_SHARE_MIN * (seen.sent - most)), seen.refused)


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
        self._values: dict[str, Any] = {name: _SPAWN.Value("q", 0) for name in ("sent", "served", "refused")}

    def seen(self) -> FloodSeen:
        return FloodSeen(**{name: int(found.value) for name, found in self._values.items()})

    def wait_until_begun(self) -> None:
        """Raises TimeoutError."""
        deadline = time.monotonic() + _BEGUN_SECONDS_MAX
        while not self.seen().sent:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the flood has sent nothing within {_BEGUN_SECONDS_MAX:g} s")
            time.sleep(0.05)

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
    rate = WRITES_A_SECOND * FLOOD_TIMES
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
            counts.add("served")
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                counts.add("refused")
        counts.add("sent")
        time.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))
