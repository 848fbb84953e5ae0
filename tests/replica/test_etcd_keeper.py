"""An etcd of our own that ends by itself is started anew, or it is told that there is none."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from leader.channel import open_channel
from rayched.replica.etcd.etcd_keeper import EtcdKeeper
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.replica.log_file import LOG_BYTES_MAX, former
from rayched.replica.ray.processes import descendants
from rayched.store.io.client import StoreClient
from tests.replica.clusters import until_true

pytestmark = pytest.mark.cluster

WAIT_SECONDS = 60.0


def value_of(server: EtcdServer) -> bytes | None:
    with open_channel([server.endpoint]) as channel:
        entry = StoreClient(channel).get(b"/key")
        return None if entry is None else entry.value


def end(server: EtcdServer) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)


def test_an_etcd_that_is_killed_is_started_anew_on_its_data_and_its_port_each_time(tmp_path: Path) -> None:
    with EtcdKeeper(EtcdServer(tmp_path / "data")) as keeper:
        endpoint = keeper.etcd.endpoint
        with open_channel([endpoint]) as channel:
            StoreClient(channel).put(b"/key", b"kept")
        for number in (1, 2):
            end(keeper.etcd)
            until_true(lambda wanted=number: keeper.starts == wanted, WAIT_SECONDS, "etcd is not started anew")  # type: ignore[misc]
            assert keeper.problem() is None and keeper.etcd.endpoint == endpoint and value_of(keeper.etcd) == b"kept"
    assert keeper.etcd.pid is None


def test_an_etcd_that_does_not_start_again_is_given_up_and_told(tmp_path: Path) -> None:
    told = threading.Event()
    with EtcdKeeper(EtcdServer(tmp_path / "data", unsafe_no_fsync=True), told.set, (0.0, 0.0)) as keeper:
        (tmp_path / "data.version").write_text("etcd Version: 99.0.0\n")
        end(keeper.etcd)
        assert told.wait(WAIT_SECONDS)
        problem = keeper.problem()
        assert keeper.gave_up and problem is not None and "was written by etcd 99.0.0" in problem
    assert keeper.problem() is None


def test_a_keeper_that_is_stopped_leaves_no_etcd(tmp_path: Path) -> None:
    keeper = EtcdKeeper(EtcdServer(tmp_path / "data", unsafe_no_fsync=True))
    keeper.start()
    pid = keeper.etcd.pid
    keeper.stop()
    keeper.stop()
    assert pid not in descendants(os.getpid()) and keeper.starts == 0


def test_the_log_of_an_etcd_that_runs_is_cut(tmp_path: Path) -> None:
    with EtcdKeeper(EtcdServer(tmp_path / "data", unsafe_no_fsync=True), log_look_seconds=0.05) as keeper:
        path, pid = keeper.etcd.log_path, keeper.etcd.pid
        with path.open("ab") as log:
            log.write(b"x" * (LOG_BYTES_MAX + 1))
        until_true(lambda: former(path).exists() and path.stat().st_size == 0, WAIT_SECONDS, "the log is not cut")
        assert former(path).stat().st_size > LOG_BYTES_MAX
        assert keeper.etcd.pid == pid and keeper.problem() is None
