"""`rayched node --ray-address`: what it refuses in one line, and what it gives to the agents."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from rayched.access.identity import IdentityKind
from rayched.cli.nodes.eviction_options import EvictionOptions
from rayched.cli.nodes.node_command import NodeOptions
from rayched.cli.nodes.ray_nodes_command import settings_of, signer_of
from rayched.pki.directory import PkiDirectory
from rayched.pki.errors import PkiError
from rayched.pki.issuing import leaf_request
from rayched.pki.tls_files import TlsFiles
from rayched.raynodes.connection import RayNotConnected, connect
from tests.cli.cluster import run_here

GRACE = ("--shutdown-grace-period", "30s", "--shutdown-grace-period-critical-pods", "10s")


def test_an_agent_gets_the_options_that_were_given_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = NodeOptions(
        root_dir=Path("state"),
        cpu="2",
        memory="1Gi",
        max_pods=7,
        node_label=["a=b", "c=d"],
        heartbeat=0.5,
        allow_root_pods=True,
        stream_token_file=Path("token"),
        http_address="127.0.0.1:0",
    )
    found = settings_of(
        "127.0.0.1:7420", options, EvictionOptions(eviction_hard="memory.available<1Gi", eviction_merge_defaults=True)
    )
    assert found.arguments == (
        *("--max-pods", "7", "--label", "a=b", "--label", "c=d", "--heartbeat", "0.5", "--allow-root-pods"),
        *("--stream-token-file", str(tmp_path / "token"), "--http-address", "127.0.0.1:0"),
        *GRACE,
        *("--eviction-hard", "memory.available<1Gi", "--eviction-merge-defaults"),
    )
    assert found.most == {"cpu": 2, "memory": 1 << 30} and found.shutdown_seconds == 30
    assert (found.servers, found.root_dir) == ("127.0.0.1:7420", str(tmp_path / "state"))


def test_an_agent_is_always_given_time_to_end_its_pods() -> None:
    bare = settings_of("s", NodeOptions(), EvictionOptions())
    assert bare.arguments == GRACE and (bare.root_dir, bare.most) == ("", {})
    own = settings_of("s", NodeOptions(shutdown_grace_period="5s"), EvictionOptions())
    assert own.arguments == ("--shutdown-grace-period", "5s") and own.shutdown_seconds == 5
    bands = settings_of("s", NodeOptions(shutdown_grace_period_by_pod_priority="0=5s,1000=2s"), EvictionOptions())
    assert bands.arguments == ("--shutdown-grace-period-by-pod-priority", "0=5s,1000=2s") and bands.shutdown_seconds == 7


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (NodeOptions(address="10.0.0.1"), "--address: not with --ray-address, as Ray says what address each node has"),
        (NodeOptions(resource=["gpu=1"]), "--resource: not with --ray-address, as Ray says what its nodes have"),
        (NodeOptions(take_over=True), "--take-over: not with --ray-address"),
        (NodeOptions(cancel=True), "--cancel: not with --ray-address"),
        (NodeOptions(cpu="500m"), "--cpu '500m': of a node of Ray want whole CPUs, 1 at least"),
        (NodeOptions(cpu="0"), "--cpu '0': of a node of Ray want whole CPUs, 1 at least"),
        (NodeOptions(memory="lots"), "--cpu, --memory: "),
        (NodeOptions(node_label=["disk"]), "--label 'disk': want NAME=VALUE"),
        (NodeOptions(system_reserved=["memory=x"]), "--system-reserved memory: "),
        (NodeOptions(crash_loop_max_period="1h"), "--crash-loop-max-period '1h': want 1s to 300s"),
        (NodeOptions(shutdown_grace_period="soon"), "--shutdown-grace-period 'soon': is no duration"),
    ],
)
def test_what_makes_no_sense_is_told_before_ray_is_asked(
    options: NodeOptions, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        settings_of("s", options, EvictionOptions())
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and line.removeprefix("error: ").startswith(wanted)


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PkiDirectory:
    monkeypatch.setenv("RAYCHED_HOME", str(tmp_path / "home"))
    return PkiDirectory.create(tmp_path / "home" / "pki")


def files_of_admin(authority: PkiDirectory) -> TlsFiles:
    wanted = leaf_request(authority.trust_domain, IdentityKind.USER, "admin")
    authority.issue(wanted)
    return TlsFiles.within(authority.place_of(wanted.identity))


def test_who_shows_a_certificate_has_its_agents_certified_by_the_same_authority(authority: PkiDirectory, tmp_path: Path) -> None:
    files = files_of_admin(authority)
    assert signer_of(None, None) is None
    for place in (None, authority.path):
        signer = signer_of(place, files)
        assert signer is not None and signer.trust_domain == authority.trust_domain
    other = PkiDirectory.create(tmp_path / "other")
    with pytest.raises(PkiError, match=f"is the authority of {other.trust_domain}, and this command is spiffe://"):
        signer_of(other.path, files)
    (authority.path / "ca.key").rename(tmp_path / "ca.key")
    with pytest.raises(PkiError, match=re.escape("its ca.key is kept elsewhere")):
        signer_of(None, files)


def test_an_authority_that_is_missing_or_not_needed_is_told(
    authority: PkiDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = files_of_admin(authority)
    for place, shown, fault in (
        (tmp_path / "nowhere", files, f"{tmp_path / 'nowhere'} is no authority that could issue them"),
        (authority.path, None, "agents need certificates where this command has one, and it goes without TLS"),
    ):
        with pytest.raises(SystemExit) as ended:
            signer_of(place, shown)
        assert ended.value.code == 2 and fault in capsys.readouterr().err
    alone = run_here(["node", "worker", "--pki-dir", str(authority.path)])
    assert alone.code == 2 and "--pki-dir" in alone.errors[0] and "goes with --ray-address alone" in alone.errors[0]


def test_a_name_and_a_ray_cluster_exclude_each_other() -> None:
    both = run_here(["node", "worker", "--ray-address", "127.0.0.1:1"])
    assert both.code == 2 and both.errors == [
        "error: node worker --ray-address: nodes of Ray have names of their own, leave NAME out"
    ]
    neither = run_here(["node"])
    assert neither.code == 2 and neither.errors == ["error: a NAME for this node is needed, or --ray-address"]


@pytest.mark.parametrize("address", ["here", "here:", ":6379", "ray://10.0.0.1:10001", "here:0", "here:99999", "auto"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(RayNotConnected, match="want HOST:PORT of the cluster's GCS") as refused:
        connect(address, lambda: False)
    assert str(refused.value).startswith(f"--ray-address {address}: ")


def test_an_address_where_nobody_listens_is_told_in_one_line() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(RayNotConnected) as refused:
            connect(address, lambda: False)
    assert str(refused.value) == f"--ray-address {address}: nothing answers there (Connection refused)"
