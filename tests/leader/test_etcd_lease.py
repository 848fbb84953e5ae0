"""The lease of a record over a real etcd: who asks for one gets one that lives, whatever became of the one before."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from leader.channel import open_channel
from leader.etcd_lease import EtcdLease
from leader.etcd_shim import rpc
from rayched.replica.etcd.etcd_server import EtcdServer
from tests.etcd_fixture import hang
from tests.leader.members import eventually
from tests.patience import least

pytestmark = pytest.mark.cluster

TTL_SECONDS = 3
"""A lease is used for a third of it."""


@pytest.fixture
def channel(etcd: EtcdServer) -> Iterator[grpc.Channel]:
    with open_channel([etcd.endpoint]) as opened:
        yield opened


@pytest.fixture
def lease(channel: grpc.Channel) -> Iterator[EtcdLease]:
    made = EtcdLease(channel, TTL_SECONDS)
    yield made
    made.close()


def used(lease: EtcdLease) -> int:
    """The lease that is given to somebody who asks; fails where none is."""
    given: list[int] = []
    failures: list[str] = []
    lease.use(time.monotonic() + 5, given.append, failures.append)
    eventually(lambda: given or failures)
    assert not failures
    return given[0]


def remaining(channel: grpc.Channel, lease_id: int) -> int:
    """Seconds; -1 where etcd does not know it."""
    return int(rpc.LeaseStub(channel).LeaseTimeToLive(rpc.LeaseTimeToLiveRequest(ID=lease_id), timeout=2).TTL)


def test_a_lease_that_is_fresh_or_was_kept_alive_is_used_again(lease: EtcdLease, channel: grpc.Channel) -> None:
    first = used(lease)
    assert used(lease) == first and remaining(channel, first) >= 0
    time.sleep(TTL_SECONDS / 3 + 0.05)
    assert used(lease) == first, "it was kept alive for whoever asked"
    assert remaining(channel, first) >= TTL_SECONDS - 1


def test_a_lease_that_etcd_gave_up_is_replaced_for_whoever_asks_next(lease: EtcdLease, channel: grpc.Channel) -> None:
    first = used(lease)
    rpc.LeaseStub(channel).LeaseRevoke(rpc.LeaseRevokeRequest(ID=first), timeout=2)
    time.sleep(TTL_SECONDS / 3 + 0.05)
    second = used(lease)
    assert second != first and remaining(channel, second) >= 0
    lease.forget(second)
    assert used(lease) not in (first, second), "somebody was told that it is gone"


def test_a_lease_is_revoked_with_the_release_and_the_next_holder_has_another(lease: EtcdLease, channel: grpc.Channel) -> None:
    first = used(lease)
    lease.revoke()
    eventually(lambda: remaining(channel, first) == -1)
    second = used(lease)
    assert second != first
    lease.revoke()
    lease.close()
    assert remaining(channel, second) == -1, "the end waits for the answer"


def test_a_lease_that_may_live_is_not_replaced_while_etcd_does_not_answer(tmp_path: Path) -> None:
    with EtcdServer(tmp_path / "data", unsafe_no_fsync=True) as server, open_channel([server.endpoint]) as channel:
        lease = EtcdLease(channel, TTL_SECONDS)
        first = used(lease)
        assert server.pid is not None
        hang(server.pid)
        try:
            time.sleep(TTL_SECONDS / 3 + 0.05)
            given: list[int] = []
            failures: list[str] = []
            lease.use(time.monotonic() + 0.4, given.append, failures.append)
            eventually(lambda: failures)
            assert failures == ["the etcd lease could not be kept alive"] and not given
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert used(lease) == first
        lease.close()


def test_without_an_etcd_whoever_asks_is_told_why_there_is_no_lease() -> None:
    with open_channel(["127.0.0.1:1"]) as channel:
        lease = EtcdLease(channel, TTL_SECONDS)
        given: list[int] = []
        failures: list[str] = []
        lease.use(time.monotonic() + 0.3, given.append, failures.append)
        eventually(lambda: failures)
        assert not given and "no etcd lease was granted" in failures[0]
        lease.close()


def seconds_until_failure(lease: EtcdLease, seconds: float) -> tuple[float, str]:
    failures: list[str] = []
    began = time.monotonic()
    lease.use(began + seconds, lambda _: failures.append("a lease was given"), failures.append)
    eventually(lambda: failures)
    return time.monotonic() - began, failures[0]


def test_whoever_asks_is_told_within_its_own_time_whether_a_lease_is_known_or_not(tmp_path: Path) -> None:
    with EtcdServer(tmp_path / "data", unsafe_no_fsync=True) as server, open_channel([server.endpoint]) as channel:
        known, unknown = EtcdLease(channel, TTL_SECONDS), EtcdLease(channel, TTL_SECONDS)
        used(known)
        time.sleep(TTL_SECONDS / 3 + 0.05)
        assert server.pid is not None
        hang(server.pid)
        try:
            for lease, told in ((known, "could not be kept alive"), (unknown, "no etcd lease was granted")):
                assert told in seconds_until_failure(lease, 0.3)[1]
                assert 0.25 <= least(lambda lease=lease: seconds_until_failure(lease, 0.3)[0], 0.9) < 0.9  # type: ignore[misc]
        finally:
            os.kill(server.pid, signal.SIGCONT)
        known.close()
        unknown.close()


def test_of_two_who_ask_while_a_lease_is_granted_the_later_one_gets_it_and_no_second_one_is_granted(tmp_path: Path) -> None:
    with EtcdServer(tmp_path / "data", unsafe_no_fsync=True) as server, open_channel([server.endpoint]) as channel:
        rpc.KVStub(channel).Range(rpc.RangeRequest(key=b"\0"), timeout=5)
        lease = EtcdLease(channel, TTL_SECONDS)
        given: list[tuple[str, int]] = []
        failures: list[str] = []
        assert server.pid is not None
        hang(server.pid)
        for name in ("first", "second"):
            lease.use(time.monotonic() + 5, lambda found, name=name: given.append((name, found)), failures.append)  # type: ignore[misc]
        os.kill(server.pid, signal.SIGCONT)
        eventually(lambda: given or failures)
        time.sleep(0.2)
        ((name, found),) = given
        assert name == "second" and not failures and used(lease) == found
        lease.close()


def test_a_record_that_was_written_keeps_its_lease_fresh(lease: EtcdLease) -> None:
    first = used(lease)
    time.sleep(TTL_SECONDS / 3 + 0.05)
    assert not lease._use.usable(time.monotonic())
    lease.renewed()
    assert eventually(lambda: lease._use.usable(time.monotonic())) == first


def test_an_end_without_a_lease_revokes_nothing_and_ends_its_thread(channel: grpc.Channel) -> None:
    made = EtcdLease(channel, TTL_SECONDS)
    assert made._thread.daemon
    made.revoke()
    assert made._revocation is None
    made.close()
    eventually(lambda: not made._thread.is_alive())
