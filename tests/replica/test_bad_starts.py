"""A replica that cannot run says why in one line, exits with 1, leaves nobody behind and changes nothing in etcd."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from leader.channel import open_channel
from rayched.replica.cluster.free_ports import free_port
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.replica.etcd_wait import wait_for_etcd
from rayched.replica.ray.processes import adopt_orphans, alive, descendants, end_tree
from rayched.store.errors import StoreUnavailable
from rayched.store.io.client import StoreClient
from tests.replica.clusters import until_true

EXIT_SECONDS_MAX = 120.0
START_SECONDS_MAX = 60.0

CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 101
profiles:
- schedulerName: a
  plugins:
    score:
      enabled:
      - name: NoSuchPlugin
"""


@pytest.fixture(scope="module")
def port_in_use() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def start(options: Sequence[str], code: int = 1, command: str = "replica", *, bare: bool = False) -> list[str]:
    """The lines on standard error of a replica, or a cluster, that must not start; `bare`: with no word on certificates."""
    adopt_orphans()
    before = {pid for pid in descendants(os.getpid()) if alive(pid)}
    process = subprocess.run(
        [sys.executable, "-m", "rayched.cli.main", command, *options, *([] if bare else ["--insecure-loopback"])],
        capture_output=True,
        text=True,
        timeout=EXIT_SECONDS_MAX,
        check=False,
    )
    assert process.returncode == code, process.stderr
    assert process.stdout == ""
    assert {pid for pid in descendants(os.getpid()) if alive(pid)} <= before
    return process.stderr.splitlines()


def revision(etcd: EtcdServer) -> int:
    with closing(open_channel([etcd.endpoint])) as channel:
        return StoreClient(channel).revision()


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--listen", "127.0.0.1:{port}"], 1, ["--listen 127.0.0.1:", "Address already in use", "free port"]),
        (["--http-address", "127.0.0.1:{port}"], 1, ["--http-address 127.0.0.1:", "Address already in use", "free port"]),
        (["--listen", "0.0.0.0:0"], 2, ["--insecure-loopback: --listen 0.0.0.0:0 is no loopback address"]),
        (["--election-profile", "slow"], 2, ["--election-profile slow", "fast and kube"]),
        (["--insecure-bind"], 2, ["--insecure-bind: is gone", "--tls-cert-file", "`rayched pki init`", "--san HOST"]),
        (["--pod-max-in-unschedulable-pods-duration", "soon"], 2, ["-pods-duration 'soon': a duration longer than 0"]),
    ],
)
def test_a_wrong_option_is_told_in_one_line(
    tmp_path: Path, etcd: EtcdServer, port_in_use: int, options: list[str], code: int, words: list[str]
) -> None:
    before = revision(etcd)
    given = [option.format(port=port_in_use) for option in options]
    listen = [] if "--listen" in given else ["--listen", "127.0.0.1:0"]
    (line,) = start([*given, *listen, "--etcd-endpoints", etcd.endpoint, "--data-dir", str(tmp_path / "data")], code)
    assert line.startswith("error: ")
    assert [word for word in words if word not in line] == []
    assert revision(etcd) == before
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("listen", ["0.0.0.0:7420", "127.0.0.1:0"])
@pytest.mark.row("B4")
def test_without_certificates_a_replica_says_which_commands_make_some(tmp_path: Path, listen: str) -> None:
    advertised = ["--advertise-address", "r-0.example:7420"] if listen.startswith("0.0.0.0") else []
    first, *commands, last = start(["--listen", listen, *advertised, "--data-dir", str(tmp_path / "data")], bare=True)
    assert first.startswith(f"error: --listen {listen}: there are no certificates")
    assert [line.split()[:3] for line in commands] == [
        ["rayched", "pki", "init"],
        ["rayched", "pki", "issue"],
        ["rayched", "replica", "--listen"],
    ]
    assert "--insecure-loopback" in last
    assert not (tmp_path / "data").exists()


@pytest.mark.cluster
def test_each_error_of_a_scheduler_configuration_is_told_with_file_line_and_field(tmp_path: Path, etcd: EtcdServer) -> None:
    before = revision(etcd)
    file = tmp_path / "scheduler.yaml"
    file.write_text(CONFIGURATION)
    lines = start(["--config", str(file), "--etcd-endpoints", etcd.endpoint, "--listen", "127.0.0.1:0"])
    assert len(lines) == 2
    assert lines[0].startswith(f"error: {file}:3: percentageOfNodesToScore: ")
    assert lines[1].startswith(f"error: {file}:9: profiles[0].plugins.score.enabled[0].name: ")
    assert revision(etcd) == before


@pytest.mark.cluster
def test_a_cluster_over_an_etcd_that_is_not_there_is_told_so_in_one_line(tmp_path: Path) -> None:
    options = ["--etcd-endpoints", "127.0.0.1:1", "--data-dir", str(tmp_path), "--port", str(free_port()), "--http-port", "0"]
    (line,) = start(options, command="up")
    assert line.startswith("error: --etcd-endpoints 127.0.0.1:1: no etcd answers there ")


@pytest.mark.cluster
def test_a_replica_that_starts_before_etcd_waits_for_it_and_says_so(tmp_path: Path) -> None:
    port = free_port()
    with waiting_replica(tmp_path, port) as (replica, log):
        until_true(lambda: log.read_text().count("no etcd answers at") > 1, START_SECONDS_MAX, log.read_text)
        assert f"127.0.0.1:{port}" in log.read_text() and replica.poll() is None
        with EtcdServer(tmp_path / "etcd", port, unsafe_no_fsync=True):
            until_true(lambda: "the API listens at" in log.read_text(), START_SECONDS_MAX, log.read_text)
            assert "etcd answers after" in log.read_text()
            replica.send_signal(signal.SIGTERM)
            assert replica.wait(START_SECONDS_MAX) == 0


@pytest.mark.cluster
def test_a_replica_that_waits_for_etcd_stops_when_it_is_told_to(tmp_path: Path) -> None:
    with waiting_replica(tmp_path, free_port()) as (replica, log):
        until_true(lambda: "no etcd answers at" in log.read_text(), START_SECONDS_MAX, log.read_text)
        replica.send_signal(signal.SIGTERM)
        assert replica.wait(START_SECONDS_MAX) == 0
        assert log.read_text().splitlines()[-1].endswith("stopped")


def test_a_wait_for_etcd_has_an_end_that_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(StoreUnavailable, match=r"; waited \d+ s for it$"):
        wait_for_etcd([f"127.0.0.1:{free_port()}"], threading.Event(), seconds_max=5.0)
    rounds = [record.getMessage() for record in caplog.records if "no etcd answers at" in record.getMessage()]
    assert rounds and all("5 s at most" in text for text in rounds)


@contextmanager
def waiting_replica(directory: Path, etcd_port: int) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """One whose etcd is to come, and its log."""
    log = directory / "replica.log"
    options = ["--etcd-endpoints", f"127.0.0.1:{etcd_port}", "--listen", "127.0.0.1:0", "--http-address", "off", "--workers", "1"]
    options.append("--insecure-loopback")
    with log.open("wb") as sink:
        replica = subprocess.Popen([sys.executable, "-m", "rayched.cli.main", "replica", *options], stderr=sink, stdout=sink)
    try:
        yield replica, log
    finally:
        if replica.poll() is None:
            end_tree(replica.pid)
            replica.wait()


@pytest.mark.cluster
def test_a_data_directory_in_use_is_told_in_one_line(tmp_path: Path) -> None:
    with EtcdServer(tmp_path / "etcd", unsafe_no_fsync=True) as owner:
        before = revision(owner)
        (line,) = start(["--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"])
        assert line.startswith(f"error: etcd data directory {tmp_path}/etcd is in use by the etcd with pid {owner.pid}")
        assert revision(owner) == before
