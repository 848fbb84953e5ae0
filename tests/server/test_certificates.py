"""Whom a replica serves over TLS: real gRPC, real certificates, and callers that are not what they should be."""

from __future__ import annotations

import contextlib
import itertools
import logging
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client import Metric

from rayched.access.identity import Identity, IdentityKind
from rayched.api.identity import IDENTITY_METADATA
from rayched.pki.authority import Authority
from rayched.pki.certificates import read_certificates, serial_text
from rayched.pki.directory import PkiDirectory
from rayched.pki.errors import PkiError
from rayched.pki.issuing import leaf_request
from rayched.pki.tls_files import TlsFiles
from rayched.server.errors import ApiFailure
from rayched.server.http.api_metrics import certificate_metrics
from rayched.server.peers import ServerTls
from rayched.server.ports import Leader
from rayched.server.server_options import ListenError, ServerOptions
from rayched.v1 import services_pb2 as messages
from rayched.v1.core_pb2 import Node
from tests.pki.made import BOTH, CLIENT, HOUR, SERVER, TRUST_DOMAIN, Pair, SetClock, a_pair, an_authority
from tests.planted_bugs import planted
from tests.server.serving import Serving, serving, until

NO_ETCD = ("127.0.0.1:1",)
"""Nobody listens there: who calls is judged before anybody would ask etcd."""
ALICE = f"spiffe://{TRUST_DOMAIN}/user/alice"
REPLICA = f"spiffe://{TRUST_DOMAIN}/replica/replica-0"
DAY = 86_400.0

Code = grpc.StatusCode


@pytest.fixture(scope="module")
def authority() -> Authority:
    return an_authority()


def options(files: TlsFiles, deny_list: Path | None = None, clock: Callable[[], float] = time.time) -> ServerOptions:
    return ServerOptions("127.0.0.1:0", NO_ETCD, tls=ServerTls.read(files, deny_list, clock))


@pytest.fixture(scope="module")
def server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    files = a_pair(authority, [REPLICA]).write(tmp_path_factory.mktemp("replica"))
    with serving(options(files), useful=False) as found:
        yield found


class Caller:
    """One connection."""

    def __init__(self, address: str, pair: Pair | None, ca: bytes) -> None:
        shown = (None, None) if pair is None else (pair.key, pair.certificate)
        credentials = grpc.ssl_channel_credentials(ca, *shown)
        self.channel = grpc.secure_channel(address, credentials, options=[("grpc.use_local_subchannel_pool", 1)])

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *error: object) -> None:
        self.channel.close()

    def call(self, name: str, request: Any, response: Any, metadata: Any = None) -> Any:
        make = self.channel.unary_unary(f"/rayched.v1.{name}", type(request).SerializeToString, response.FromString)
        return make(request, timeout=5.0, metadata=metadata)

    def leader(self) -> Any:
        return self.call("Leadership/GetLeader", messages.GetLeaderRequest(), messages.GetLeaderResponse)

    def watch_leader(self) -> Any:
        request, response = messages.GetLeaderRequest.SerializeToString, messages.GetLeaderResponse.FromString
        return self.channel.unary_stream("/rayched.v1.Leadership/WatchLeader", request, response)(messages.GetLeaderRequest())


def refused(caller: Caller) -> Any:
    with pytest.raises(grpc.RpcError) as raised:
        caller.leader()
    return raised.value


def handled(server: Serving, act: Callable[[], Any]) -> int:
    """How often a handler ran meanwhile."""
    calls, asked = [], server.leadership.leader

    def counted() -> Any:
        calls.append(1)
        return asked()

    server.leadership.leader = counted  # type: ignore[method-assign]
    try:
        act()
    finally:
        del server.leadership.leader  # type: ignore[method-assign]
    return len(calls)


def test_whoever_has_a_certificate_of_the_authority_is_served(server: Serving, authority: Authority) -> None:
    with Caller(server.address, a_pair(authority, [ALICE], [CLIENT]), authority.certificate_pem) as caller:
        assert handled(server, caller.leader) == 1


def self_signed(mine: Authority) -> Pair:
    alone = an_authority()
    return Pair(alone.certificate_pem, alone.key_pem, mine.certificate_pem, alone.certificate.serial_number)


AT_THE_HANDSHAKE: dict[str, Callable[[Authority], Pair | None]] = {
    "of another authority": lambda mine: a_pair(an_authority(), [ALICE], [CLIENT], trusts=mine),
    "signed by itself": self_signed,
    "expired": lambda mine: a_pair(mine, [ALICE], [CLIENT], begins=-DAY, ends=-60.0),
    "not yet valid": lambda mine: a_pair(mine, [ALICE], [CLIENT], begins=3600.0, ends=DAY),
    "for servers alone": lambda mine: a_pair(mine, [ALICE], [SERVER]),
    "with a forged signature": lambda mine: a_pair(mine, [ALICE], [CLIENT], signed_by=an_authority().key),
    "none": lambda mine: None,
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param("of another authority", marks=pytest.mark.row("B12")),
        pytest.param("signed by itself", marks=pytest.mark.row("B13")),
        pytest.param("expired", marks=pytest.mark.row("B14")),
        pytest.param("not yet valid", marks=pytest.mark.row("B15")),
        pytest.param("for servers alone", marks=pytest.mark.row("B16")),
        pytest.param("with a forged signature", marks=pytest.mark.row("B21")),
        pytest.param("none", marks=pytest.mark.row("B23")),
    ],
)
def test_what_the_handshake_refuses_reaches_no_handler(server: Serving, authority: Authority, case: str) -> None:
    with Caller(server.address, AT_THE_HANDSHAKE[case](authority), authority.certificate_pem) as caller:
        found = []
        assert handled(server, lambda: found.append(refused(caller))) == 0
        assert found[0].code() is Code.UNAVAILABLE


AT_THE_EDGE: dict[str, tuple[Callable[[Authority], Pair], str]] = {
    "without a use": (lambda mine: a_pair(mine, [ALICE], []), "does not name clientAuth"),
    "with two URIs": (
        lambda mine: a_pair(mine, [ALICE, ALICE + "2"], [CLIENT]),
        "has 2 URIs among its names, want exactly one",
    ),
    "without a URI": (lambda mine: a_pair(mine, [], [CLIENT]), "has 0 URIs among its names, want exactly one"),
    "with another URI": (lambda mine: a_pair(mine, ["https://a.example/"], [CLIENT]), 'does not begin with "spiffe://"'),
    "of another trust domain": (
        lambda mine: a_pair(mine, ["spiffe://rayched-ffffffff/user/alice"], [CLIENT]),
        "of another trust domain than rayched-0a1b2c3d",
    ),
    "an authority's": (lambda mine: a_pair(mine, [ALICE], BOTH, is_authority=True), "is that of a certificate authority"),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param("without a use", marks=pytest.mark.row("B17")),
        pytest.param("with two URIs", marks=pytest.mark.row("B18")),
        "without a URI",
        "with another URI",
        pytest.param("of another trust domain", marks=pytest.mark.row("B19")),
        pytest.param("an authority's", marks=pytest.mark.row("B20")),
    ],
)
def test_what_the_handshake_lets_pass_is_refused_by_each_call(
    server: Serving, authority: Authority, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    make, message = AT_THE_EDGE[case]
    caplog.set_level(logging.WARNING)
    with Caller(server.address, make(authority), authority.certificate_pem) as caller:
        found: list[Any] = []
        assert handled(server, lambda: found.extend(refused(caller) for _ in range(3))) == 0
        assert {one.code() for one in found} == {Code.UNAUTHENTICATED}
        assert message in found[0].details()
        stream = caller.watch_leader()
        with pytest.raises(grpc.RpcError) as raised:
            next(stream)
        assert raised.value.code() is Code.UNAUTHENTICATED
    told = [record.getMessage() for record in caplog.records if message in record.getMessage()]
    assert len(told) == 1, "one line, however often it is tried"
    assert "127.0.0.1" in told[0]


@pytest.mark.parametrize(("version", "served"), [("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)])
@pytest.mark.row("B22")
def test_old_versions_of_tls_are_refused(
    server: Serving, authority: Authority, tmp_path: Path, version: str, served: bool
) -> None:
    files = a_pair(authority, [ALICE], [CLIENT]).write(tmp_path / "alice")
    shown = ["-cert", str(files.certificate), "-key", str(files.key), "-CAfile", str(files.ca)]
    words = ["openssl", "s_client", "-connect", server.address, version, "-cipher", "ALL:@SECLEVEL=0", "-alpn", "h2", "-brief"]
    found = subprocess.run([*words, *shown], input=b"", capture_output=True, timeout=20, check=False)
    assert (b"CONNECTION ESTABLISHED" in found.stdout + found.stderr) is served


def test_a_replica_says_how_long_its_certificate_is_valid(server: Serving, authority: Authority) -> None:
    with Caller(server.address, a_pair(authority, [ALICE], [CLIENT]), authority.certificate_pem) as caller:
        state = caller.leader().replica
        assert state.HasField("certificate_seconds_left") and 0 < state.certificate_seconds_left <= HOUR
        assert not next(caller.watch_leader()).HasField("replica")


@pytest.mark.row("B3")
def test_a_caller_without_tls_reaches_no_handler(server: Serving) -> None:
    with grpc.insecure_channel(server.address) as channel:
        leader = channel.unary_unary("/rayched.v1.Leadership/GetLeader")
        with pytest.raises(grpc.RpcError) as raised:
            leader(b"", timeout=5.0)
    assert raised.value.code() is Code.UNAVAILABLE


def test_the_agent_of_a_node_is_who_its_certificate_says(server: Serving, authority: Authority) -> None:
    agent = a_pair(authority, [f"spiffe://{TRUST_DOMAIN}/node/node-1"], [CLIENT])
    node = Node()
    node.metadata.name = "node-2"
    request = messages.RegisterNodeRequest(node=node)
    claims = ((IDENTITY_METADATA, "system:node:node-2"),)
    with Caller(server.address, agent, authority.certificate_pem) as caller:
        for metadata in (None, claims):
            with pytest.raises(grpc.RpcError) as raised:
                caller.call("Nodes/Register", request, messages.RegisterNodeResponse, metadata)
            assert raised.value.code() is Code.PERMISSION_DENIED
            assert "system:node:node-1 may not Nodes.Register" in raised.value.details()


@pytest.mark.row("B34")
def test_a_handshake_that_stalls_is_over_after_five_seconds_and_holds_up_nobody(server: Serving, authority: Authority) -> None:
    host, _, port = server.address.rpartition(":")
    began = time.monotonic()
    with socket.create_connection((host, int(port)), 20.0) as stalled:
        with Caller(server.address, a_pair(authority, [ALICE], [CLIENT]), authority.certificate_pem) as caller:
            caller.leader()
        stalled.settimeout(20.0)
        with contextlib.suppress(ConnectionResetError):
            assert stalled.recv(1) == b""
    assert 4.0 < time.monotonic() - began < 15.0


@pytest.mark.row("B33")
def test_the_metric_says_how_long_certificates_are_still_valid(server: Serving, authority: Authority) -> None:

    async def asked() -> list[Metric]:
        return server.server.metrics()

    [family] = [one for one in server.run(asked()) if one.name == "rayched_certificate_expiry_seconds"]
    values = {sample.labels["use"]: sample.value for sample in family.samples}
    assert values.keys() == {"server", "client-ca"}
    shown = read_certificates(shown_pem(server.address), "")[0].not_valid_after_utc.timestamp()
    assert abs(values["server"] + time.time() - shown) < 60.0
    assert abs(values["client-ca"] + time.time() - authority.certificate.not_valid_after_utc.timestamp()) < 60.0
    assert [one.samples for one in certificate_metrics(None, 0.0)] == [[]]


class TestServersCertificate:
    """What a caller meets."""

    @pytest.mark.row("B25")
    def test_a_certificate_for_other_places_is_refused_by_the_caller(self, authority: Authority, tmp_path: Path) -> None:
        files = a_pair(authority, [REPLICA], hosts=["elsewhere.example", "10.9.9.9"]).write(tmp_path / "tls")
        alice = a_pair(authority, [ALICE], [CLIENT])
        with (
            serving(options(files), useful=False) as server,
            Caller(server.address, alice, authority.certificate_pem) as caller,
        ):
            assert handled(server, lambda: refused(caller)) == 0

    @pytest.mark.row("B26")
    def test_no_replica_serves_with_a_certificate_for_callers(self, authority: Authority, tmp_path: Path) -> None:
        """Nobody would take it."""
        files = a_pair(authority, [REPLICA], [CLIENT]).write(tmp_path / "tls")
        with pytest.raises(PkiError, match="is not for servers"):
            ServerTls.read(files, None)
        files = a_pair(authority, [f"spiffe://{TRUST_DOMAIN}/node/node-1"]).write(tmp_path / "node")
        with pytest.raises(PkiError, match=r"/node/node-1, want one of `rayched pki issue replica`"):
            ServerTls.read(files, None)

    def test_beyond_loopback_there_have_to_be_certificates(self, authority: Authority, tmp_path: Path) -> None:
        files = a_pair(authority, [REPLICA]).write(tmp_path / "tls")
        with pytest.raises(ListenError, match="is not loopback; other addresses need certificates"):
            Serving(ServerOptions("0.0.0.0:0", NO_ETCD), useful=False)
        with serving(ServerOptions("0.0.0.0:0", NO_ETCD, tls=ServerTls.read(files, None)), useful=False) as server:
            assert server.address.startswith("0.0.0.0:")

    @pytest.mark.row("B27")
    def test_new_files_are_shown_to_new_connections_and_end_no_old_one(self, authority: Authority, tmp_path: Path) -> None:
        first, second = a_pair(authority, [REPLICA]), a_pair(authority, [REPLICA])
        alice = a_pair(authority, [ALICE], [CLIENT])
        tls = ServerTls.read(first.write(tmp_path / "tls"), None)
        with (
            serving(ServerOptions("127.0.0.1:0", NO_ETCD, tls=tls), useful=False) as server,
            Caller(server.address, alice, authority.certificate_pem) as old,
        ):
            old.leader()
            second.write(tmp_path / "tls")
            assert shown_serial(server.address) == second.serial
            old.leader()
            assert tls.certificate.facts.serial == second.serial

    @pytest.mark.parametrize(
        ("part", "left"),
        [
            *itertools.product(["tls.crt", "tls.key", "ca.crt"], ["half", "nothing", "gone"]),
            *itertools.product(["tls.crt", "tls.key"], ["another's"]),
            ("tls.key", "open to others"),
        ],
    )
    @pytest.mark.row("B28")
    def test_files_that_do_not_fit_leave_the_old_ones_in_force(
        self, authority: Authority, tmp_path: Path, part: str, left: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        first, second = a_pair(authority, [REPLICA]), a_pair(authority, [REPLICA])
        files = first.write(tmp_path / "tls")
        tls = ServerTls.read(files, None)
        path = tmp_path / "tls" / part
        caplog.set_level(logging.ERROR)
        whole = {"tls.crt": second.certificate, "tls.key": second.key, "ca.crt": second.ca}[part]
        match left:
            case "another's":
                path.write_bytes(whole)
            case "half":
                path.write_bytes(whole[: len(whole) // 2])
            case "nothing":
                path.write_bytes(b"")
            case "gone":
                path.unlink()
            case _:
                path.write_bytes(first.key + b"\n")
                path.chmod(0o644)
        assert [tls.certificate.look() for _ in range(3)] == [False] * 3
        assert tls.certificate.facts.serial == first.serial
        told = [record.getMessage() for record in caplog.records if "stays" in record.getMessage()]
        assert len(told) == 1 and str(path) in told[0]
        files = second.write(tmp_path / "tls")
        files.key.chmod(0o600)
        assert tls.certificate.look()
        assert tls.certificate.facts.serial == second.serial


def shown_serial(address: str) -> int:
    return read_certificates(shown_pem(address), address)[0].serial_number


def shown_pem(address: str) -> bytes:
    """The certificate that a new connection is shown."""
    words = ["openssl", "s_client", "-connect", address, "-alpn", "h2"]
    found = subprocess.run(words, input=b"", capture_output=True, timeout=20, check=False).stdout
    begin, end = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
    return found[found.index(begin) : found.index(end) + len(end)]


class TestWhatCountsNoMore:
    """A connection outlives its certificate; calls and streams on it do not."""

    @pytest.fixture
    def made(self, tmp_path: Path) -> PkiDirectory:
        return PkiDirectory.create(tmp_path / "pki")

    @pytest.fixture
    def clock(self) -> SetClock:
        return SetClock(time.time())

    @pytest.fixture
    def server(self, made: PkiDirectory, clock: SetClock) -> Iterator[Serving]:
        made.issue(leaf_request(made.trust_domain, IdentityKind.REPLICA, "replica-0"))
        files = TlsFiles.within(made.path / "replica" / "replica-0")
        with serving(options(files, made.deny_list, clock), useful=False) as found:
            yield found

    @pytest.fixture
    def caller(self, made: PkiDirectory, server: Serving) -> Iterator[Caller]:
        with Caller(server.address, self.issued(made, "alice"), made.bundle) as found:
            yield found

    def issued(self, made: PkiDirectory, name: str) -> Pair:
        record = made.issue(leaf_request(made.trust_domain, IdentityKind.USER, name))
        place = Path(record.directory)
        parts = [(place / file).read_bytes() for file in ("tls.crt", "tls.key", "ca.crt")]
        return Pair(*parts, int(record.serial, 16))

    def ends(self, stream: Any, message: str, serial: int) -> None:
        with pytest.raises(grpc.RpcError) as raised:
            next(stream)
        assert raised.value.code() is Code.UNAUTHENTICATED
        assert message in raised.value.details()
        assert dict(raised.value.trailing_metadata())["rayched-certificate"] == serial_text(serial)

    @pytest.mark.row("B30")
    def test_an_expired_certificate_ends_calls_and_silent_streams(
        self, server: Serving, caller: Caller, made: PkiDirectory, clock: SetClock
    ) -> None:
        stream = caller.watch_leader()
        next(stream)
        record = made.issued()[-1]
        clock.now = record.not_after - 0.001
        caller.leader()
        clock.now = record.not_after
        assert "alice has expired" in refused(caller).details()
        assert handled(server, lambda: refused(caller)) == 0
        self.ends(stream, "alice has expired, at 2", int(record.serial, 16))

    @pytest.mark.row("B31")
    def test_a_revoked_certificate_ends_calls_and_silent_streams_and_no_others(
        self, server: Serving, caller: Caller, made: PkiDirectory
    ) -> None:
        with Caller(server.address, self.issued(made, "bob"), made.bundle) as bob:
            streams = caller.watch_leader(), bob.watch_leader()
            for stream in streams:
                next(stream)
            [record] = made.revoke(f"spiffe://{made.trust_domain}/user/alice")
            self.ends(streams[0], "alice is revoked", int(record.serial, 16))
            assert "alice is revoked" in refused(caller).details()
            server.leadership.set(Leader("somebody", "127.0.0.1:1", 1))
            assert next(streams[1]).holder == "somebody"
            bob.leader()
            streams[1].cancel()

    def test_health_and_reflection_are_judged_as_all_others(
        self, server: Serving, caller: Caller, made: PkiDirectory, clock: SetClock
    ) -> None:
        health, request = health_pb2_grpc.HealthStub(caller.channel), health_pb2.HealthCheckRequest(service="")
        reflection = reflection_pb2_grpc.ServerReflectionStub(caller.channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        health.Check(request, timeout=5.0)
        assert next(reflection.ServerReflectionInfo(iter([asked]), timeout=5.0)).list_services_response.service
        stream = health.Watch(request)
        next(stream)
        record = made.issued()[-1]
        clock.now = record.not_after
        self.ends(stream, "alice has expired", int(record.serial, 16))
        for call in (
            lambda: health.Check(request, timeout=5.0),
            lambda: next(health.Watch(request)),
            lambda: next(reflection.ServerReflectionInfo(iter([asked]), timeout=5.0)),
        ):
            with pytest.raises(grpc.RpcError) as raised:
                call()
            assert raised.value.code() is Code.UNAUTHENTICATED

    def test_a_message_of_a_stream_is_not_sent_to_who_is_expired(
        self, server: Serving, caller: Caller, made: PkiDirectory, clock: SetClock
    ) -> None:
        stream = caller.watch_leader()
        next(stream)
        clock.now = made.issued()[-1].not_after
        server.leadership.set(Leader("somebody", "127.0.0.1:1", 1))
        self.ends(stream, "alice has expired", int(made.issued()[-1].serial, 16))

    def test_a_deny_list_that_cannot_be_read_denies_what_it_did(
        self, server: Serving, caller: Caller, made: PkiDirectory, caplog: pytest.LogCaptureFixture
    ) -> None:
        made.revoke(f"spiffe://{made.trust_domain}/user/alice")
        until(lambda: refused_code(caller) is Code.UNAUTHENTICATED)
        made.deny_list.write_text("zz\n")
        until(lambda: any("the deny list stays as it was" in record.getMessage() for record in caplog.records))
        assert refused_code(caller) is Code.UNAUTHENTICATED
        made.deny_list.unlink()
        time.sleep(1.2)
        assert refused_code(caller) is Code.UNAUTHENTICATED

    def test_the_planted_bug_is_noticed(self, caller: Caller, made: PkiDirectory, clock: SetClock) -> None:
        clock.now = made.issued()[-1].not_after
        with planted("certificates are not judged in each call"):
            caller.leader()
        assert refused_code(caller) is Code.UNAUTHENTICATED


def refused_code(caller: Caller) -> Any:
    try:
        caller.leader()
    except grpc.RpcError as error:
        return error.code()
    return Code.OK


class TestForwarding:
    """From a standby to the leader, over the replica's own certificate. The leader listens at all addresses of the host."""

    @pytest.fixture
    def two(self, authority: Authority, tmp_path: Path) -> Iterator[tuple[str, Serving]]:
        """The leader's port and a standby."""
        tls = [
            ServerTls.read(
                a_pair(authority, [f"spiffe://{TRUST_DOMAIN}/replica/replica-{number}"]).write(tmp_path / str(number)), None
            )
            for number in range(2)
        ]
        with (
            serving(ServerOptions("0.0.0.0:0", NO_ETCD, tls=tls[0]), "replica-0", False) as leader,
            serving(ServerOptions("127.0.0.1:0", NO_ETCD, tls=tls[1]), "replica-1", False) as standby,
        ):
            port = leader.address.rpartition(":")[2]
            leader.leadership.set(Leader("replica-0", f"127.0.0.1:{port}", 7))
            yield port, standby

    def asked(self, standby: Serving, authority: Authority, leader_address: str) -> Any:
        standby.leadership.set(Leader("replica-0", leader_address, 7))
        until(lambda: standby.leadership.leader() is not None)
        admin = a_pair(authority, [f"spiffe://{TRUST_DOMAIN}/user/admin"], [CLIENT])
        with Caller(standby.address, admin, authority.certificate_pem) as caller:
            request = messages.GetSchedulerStatusRequest()
            return caller.call("Scheduling/GetSchedulerStatus", request, messages.GetSchedulerStatusResponse)

    def test_a_question_reaches_the_leader_with_the_askers_identity(self, two: tuple[str, Serving], authority: Authority) -> None:
        port, standby = two
        assert self.asked(standby, authority, f"127.0.0.1:{port}").holder == "replica-0"

    @pytest.mark.row("B25")
    def test_a_leader_whose_certificate_names_another_place_is_not_believed(
        self, two: tuple[str, Serving], authority: Authority
    ) -> None:
        port, standby = two
        with pytest.raises(grpc.RpcError) as raised:
            self.asked(standby, authority, f"127.0.0.2:{port}")
        assert raised.value.code() is Code.UNAVAILABLE
        assert "does not answer" in raised.value.details()


class Context:
    """What a judge asks of gRPC's context."""

    def __init__(self, pair: Pair | None, *metadata: tuple[str, str]) -> None:
        self._pair, self._metadata = pair, metadata

    def auth_context(self) -> dict[str, list[bytes]]:
        return {} if self._pair is None else {"x509_pem_cert": [self._pair.certificate]}

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    def peer(self) -> str:
        return "ipv4:127.0.0.1:4711"


def test_a_call_is_identified_by_a_certificate_that_counts(authority: Authority, tmp_path: Path) -> None:
    clock = SetClock(time.time())
    tls = ServerTls.read(a_pair(authority, [REPLICA]).write(tmp_path / "tls"), None, clock)
    says = ("rayched-for", ALICE)
    assert tls.judge.identify(Context(a_pair(authority, [ALICE], [CLIENT]))) == Identity.parse(ALICE)
    assert tls.judge.identify(Context(a_pair(authority, [REPLICA]), says)) == Identity.parse(REPLICA)
    late = a_pair(authority, [REPLICA], ends=60.0)
    stranger = a_pair(authority, ["spiffe://rayched-ffffffff/replica/replica-1"])
    clock.now += 3600.0
    for pair, message in ((late, "has expired"), (stranger, "of another trust domain"), (None, "has no certificate")):
        with pytest.raises(ApiFailure, match=message) as raised:
            tls.judge.identify(Context(pair, says))
        assert raised.value.code is Code.UNAUTHENTICATED


def test_openssl_is_there_to_ask_as_a_stranger_would() -> None:
    assert shutil.which("openssl") is not None
