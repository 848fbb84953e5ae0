"""The gateway beside a replica: there with it, killed, flooded and out of memory without it, and gone with it."""

from __future__ import annotations

import http.client
import os
import signal
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rayched.cli.cluster.own_gateway_options import OwnGatewayOptions
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.pki.tls_files import TlsFiles
from rayched.replica.cluster.free_ports import free_port
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.cluster.local_pki import LocalPki
from rayched.replica.cluster.local_start import wait_until_up
from rayched.replica.gateway_keeper import GatewayKeeper, GatewayPlace
from rayched.replica.ray.processes import alive, descendants
from rayched.replica.settings import SettingsError
from rayched.v1.access_pb2 import RoleBinding
from rayched.v1.core_pb2 import Pod
from tests.cli.cluster import a_pod_text
from tests.gateway.requests import HttpAnswer, ask
from tests.replica.clusters import until_true

pytestmark = pytest.mark.cluster

WAIT_SECONDS = 60.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


class Beside:
    """A replica and its gateway."""

    def __init__(self, cluster: LocalCluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.url = f"https://{cluster.gateways[0]}"
        files = cluster.tls
        assert files is not None
        self.tls = ssl.create_default_context(cafile=files.ca)
        self.tls.load_cert_chain(files.certificate, files.key)

    def pid(self) -> int | None:
        for pid in descendants(self.cluster.replicas[0].pid):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if alive(pid) else []
            if b"rayched.cli.main" in words and b"gateway" in words and b"-c" not in words:
                return pid
        return None

    def answers(self) -> bool:
        try:
            return ask(self.url, "/api/v1/nodes", tls=self.tls).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def binds(self, name: str) -> None:
        pod = Pod(api_version="v1", kind="Pod", metadata={"name": name, "namespace": "default"})
        pod.spec.containers.add(name="main", image="registry.example/a:1")
        self.client.submit(pod)
        assert self.client.wait_bound(name)[0].spec.node_name


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    directory = tmp_path_factory.mktemp("beside")
    pki = LocalPki(directory / "pki", 1, gateways=True)
    # On a host that is busy otherwise a lease of two seconds ends by itself now and then.
    options = ["--workers", "0", "--election-profile", "kube"]
    with LocalCluster(
        directory / "up", 1, first_gateway_port=free_port(), unsafe_no_fsync=True, options=options, pki=pki
    ) as cluster:
        with cluster.client(timeout_seconds=30.0) as client:
            wait_until_up(cluster, client)
            client.register_node(hollow_nodes(1, 1, NodeShape())[0])
            found = Beside(cluster, client)
            until_true(found.answers, WAIT_SECONDS, "the gateway does not answer")
            yield found
            gateway = found.pid()
            assert gateway is not None
        cluster.stop()
        assert not alive(gateway)


@pytest.mark.row("KC29")
def test_a_gateway_that_is_killed_is_started_anew_and_the_replica_does_not_notice(beside: Beside) -> None:
    epoch, replica = beside.client.leader().epoch, beside.cluster.replicas[0].pid
    for number in range(2):
        gateway = beside.pid()
        assert gateway is not None and Path(f"/proc/{gateway}/oom_score_adj").read_text().strip() == "900"
        niceness = os.getpriority(os.PRIO_PROCESS, replica)
        assert os.getpriority(os.PRIO_PROCESS, gateway) == min(19, niceness + 5)
        os.kill(gateway, signal.SIGKILL)
        beside.binds(f"killed-{number}")
        until_true(lambda was=gateway: beside.pid() not in (None, was), WAIT_SECONDS, "no gateway")  # type: ignore[misc]
        until_true(beside.answers, WAIT_SECONDS, "the new gateway does not answer")
    assert (beside.client.leader().epoch, beside.cluster.replicas[0].pid) == (epoch, replica)


@pytest.mark.row("KC29")
def test_a_gateway_that_is_flooded_costs_no_term_and_no_binding(beside: Beside) -> None:
    epoch = beside.client.leader().epoch
    stop = threading.Event()
    body = b"[" * (3 << 20)

    def flood() -> None:
        while not stop.is_set():
            try:
                ask(beside.url, "/api/v1/namespaces/default/pods", "POST", body, {"Content-Type": "application/json"}, beside.tls)
            except (OSError, http.client.HTTPException):
                continue

    threads = [threading.Thread(target=flood) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        for number in range(5):
            beside.binds(f"flooded-{number}")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert beside.client.leader().epoch == epoch
    until_true(beside.answers, WAIT_SECONDS, "the gateway does not answer after the flood")


@pytest.mark.row("KC29")
def test_a_gateway_without_memory_ends_and_begins_anew_by_itself(beside: Beside) -> None:
    port = free_port()
    tls = beside.cluster.tls
    assert tls is not None
    place = GatewayPlace(f"127.0.0.1:{port}", None)
    command = [*place.command("127.0.0.1:1")]
    # Too little for the interpreter and what it imports.
    starved = GatewayKeeper(command, memory_bytes=1 << 22, pauses_seconds=(0.1,))
    starved.start()
    try:
        until_true(lambda: starved.starts >= 3, WAIT_SECONDS, "it is not started anew")
        beside.binds("starved")
    finally:
        starved.stop()
    assert starved.pid is None
    fed = GatewayKeeper(command)
    fed.start()

    def lives() -> bool:
        try:
            return ask(f"http://127.0.0.1:{port}", "/livez").body == b"ok"
        except OSError:
            return False

    try:
        until_true(lives, WAIT_SECONDS, "it does not live")
        assert fed.starts == 1
    finally:
        fed.stop()
    assert fed.pid is None and urlsplit(beside.url).port != port


@pytest.mark.row("UI27")
def test_a_plan_on_the_page_is_made_in_its_readers_name(beside: Beside) -> None:
    tls = beside.cluster.tls
    assert tls is not None
    without_certificate = ssl.create_default_context(cafile=tls.ca)
    domain = beside.client.who_am_i().identity.rpartition("/")[0]

    def reader(name: str, role: str, *namespaces: str) -> dict[str, str]:
        beside.client.grant(RoleBinding(subject=f"{domain}/{name}", role=role, namespaces=namespaces))
        secret = beside.client.issue_token(f"{domain}/{name}").secret
        return {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}

    manifest = a_pod_text("planned", cpu="100m")

    def planned(headers: dict[str, str], context: ssl.SSLContext = without_certificate) -> HttpAnswer:
        return ask(beside.url, "/ui/api/plan", "POST", {"manifest": manifest}, headers, context)

    def once_known(headers: dict[str, str]) -> HttpAnswer:
        """A token that was just made is known once the replica has read of it; wrong ones are counted, so it is asked seldom."""
        for _ in range(15):
            answer = planned(headers)
            if answer.status != 401:
                return answer
            time.sleep(0.5)
        raise AssertionError(answer.document)

    refused = once_known(reader("vera", "viewer", "default"))
    assert refused.status == 403 and f"{domain}/vera may not Scheduling.GetPlanBasis" in refused.document["error"]
    # Who may ask what a plan begins with, and may not read nodes.
    refused = once_known(reader("vito", "viewer", "*"))
    assert refused.status == 403 and f"{domain}/vito may not Submission.List" in refused.document["error"]
    operator = reader("olga", "operator")
    once_known(operator)
    (node,) = [one.metadata.name for one in beside.client.list("nodes")]
    for headers, context in ((operator, without_certificate), ({"Content-Type": "application/json"}, beside.tls)):
        found: dict[str, Any] = {}
        deadline = time.monotonic() + 240.0
        while "exit_code" not in found and time.monotonic() < deadline:
            # A busy host takes longer than a plan of the page may.
            found = planned(headers, context).document
        assert [(one["pod"], one["node_name"]) for one in found["placements"]] == [("default/planned", node)]
    gateway = beside.pid()
    assert gateway is not None
    until_true(lambda: not [pid for pid in descendants(gateway) if alive(pid)], WAIT_SECONDS, "a plan's process goes on")
    with pytest.raises(ApiError, match="not found"):
        beside.client.get("pod", "planned")


TLS = TlsFiles.within(Path("/tls"))
OWN = (Path("/own/tls.crt"), Path("/own/tls.key"))


@pytest.mark.parametrize(
    ("options", "tls", "said"),
    [
        ({"gateway_address": "127.0.0.1:7620"}, TLS, "the gateway needs one of its own"),
        ({"gateway_address": "0.0.0.0:7620"}, None, "is no loopback address"),
        ({"gateway_address": "7620"}, None, "an address is host:port"),
        ({"gateway_cert_file": OWN[0]}, TLS, "go with --gateway-address alone"),
        ({"gateway_address": "127.0.0.1:7620", "gateway_cert_file": OWN[0]}, TLS, "one is missing"),
        (
            {"gateway_address": "127.0.0.1:7620", "gateway_cert_file": OWN[0], "gateway_private_key_file": OWN[1]},
            None,
            "the replica has none",
        ),
    ],
)
def test_where_it_listens_and_what_it_shows_is_checked_before_anything_starts(
    options: dict[str, Any], tls: TlsFiles | None, said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        OwnGatewayOptions(**options).settings(tls, None)


def test_its_command_names_what_the_replica_trusts() -> None:
    options = OwnGatewayOptions(gateway_address="0.0.0.0:7620", gateway_cert_file=OWN[0], gateway_private_key_file=OWN[1])
    place = options.settings(TLS, Path("/tls/revoked"))["gateway"]
    words = place.command("127.0.0.1:7420")
    assert words[words.index("--client-ca-file") + 1] == str(TLS.ca)
    assert words[words.index("--client-deny-list-file") + 1] == "/tls/revoked"
    assert words[words.index("--tls-private-key-file") + 1] == str(OWN[1])
    assert OwnGatewayOptions().settings(TLS, None) == {"gateway": None}
