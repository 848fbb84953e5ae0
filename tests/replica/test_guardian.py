"""The guardian of a replica that is gone: it ends what is below it, and exactly the term that its replica held.

A small process stands for the replica, and `sleep` for Ray: nothing here depends on what they do beside living and ending.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from leader.channel import SecureEndpoints, open_channel
from leader.revocation import Evidence, HeldTerm, RevocationNote
from leader.tls_channel import EtcdTls
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.replica.ray.processes import adopt_orphans, alive, descendants, end_descendants
from rayched.replica.ray.published_term import PublishedTerm, term_line
from rayched.replica.ray.term_revoker import PREPARE_AFTER_SECONDS
from rayched.replica.settings import ReplicaSettings
from rayched.store.keys import Keys
from tests.etcd_fixture import hang
from tests.leader.members import eventually, value_of
from tests.leader.test_revocation import held_term, keys_of

REPLICA = """
import os, subprocess, sys

guardian = subprocess.Popen(
    [sys.executable, "-m", "rayched.replica.ray.guardian", sys.argv[1], sys.executable, "-c", "import time; time.sleep(600)"],
    stdin=subprocess.PIPE,
    start_new_session=True,
)
print(guardian.pid, flush=True)
for line in sys.stdin:
    if line.strip() == "close":
        guardian.stdin.close()
        guardian.wait()
        print("ended", flush=True)
    else:
        os.write(guardian.stdin.fileno(), line.encode())
        print("told", flush=True)
"""
SECONDS_MAX = 60.0


class StandIn:
    """A replica, its guardian and what is below that."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", REPLICA, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.guardian = int(self._answer())
        eventually(lambda: descendants(self.guardian), SECONDS_MAX)

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)
        assert self._answer().strip() in ("told", "ended")

    def publish(self, term: PublishedTerm) -> None:
        self.tell(term.to_line().decode().strip())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait_until_gone(self) -> None:
        eventually(lambda: not alive(self.guardian), SECONDS_MAX)

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@contextmanager
def stand_in(directory: Path) -> Iterator[StandIn]:
    """In the end nobody of it is left."""
    adopt_orphans()
    before = descendants(os.getpid())
    replica = StandIn(directory)
    try:
        yield replica
    finally:
        replica.process.kill()
        replica.process.wait()
        end_descendants(os.getpid(), keep=before)


@pytest.fixture
def channel(etcd: EtcdServer) -> Iterator[grpc.Channel]:
    with open_channel([etcd.endpoint]) as opened:
        yield opened


@pytest.fixture
def term(channel: grpc.Channel, etcd: EtcdServer, etcd_root: str) -> PublishedTerm:
    """One that is held in etcd."""
    keys = keys_of(etcd_root)
    held = held_term(channel, keys)
    names = keys.record.decode(), keys.epoch.decode(), keys.note.decode()
    return PublishedTerm("replica-a", (etcd.endpoint,), *names, held.lease_id, held.epoch)


def note_of(channel: grpc.Channel, term: PublishedTerm) -> RevocationNote:
    return RevocationNote.from_json(value_of(channel, term.note) or b"")


@pytest.mark.cluster
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after it has prepared"])
def test_the_term_of_a_killed_replica_ends(tmp_path: Path, channel: grpc.Channel, term: PublishedTerm, waits: bool) -> None:
    with stand_in(tmp_path / "own") as replica:
        below = descendants(replica.guardian)
        replica.publish(replace(term, epoch=1))
        replica.publish(term)
        if waits:
            time.sleep(PREPARE_AFTER_SECONDS + 1.0)
        replica.kill()
        replica.wait_until_gone()
        assert value_of(channel, term.record) is None
        expected = RevocationNote(term.epoch, Evidence.DEAD, "guardian of replica-a", "whose process has ended")
        assert note_of(channel, term) == expected
        assert [pid for pid in below if alive(pid)] == []


@pytest.mark.cluster
def test_a_successors_term_is_left_alone(channel: grpc.Channel, tmp_path: Path, etcd_root: str, term: PublishedTerm) -> None:
    with stand_in(tmp_path / "own") as replica:
        replica.publish(term)
        held_term(channel, keys_of(etcd_root))
        replica.kill()
        replica.wait_until_gone()
        assert value_of(channel, term.record) == b"{}"
        assert value_of(channel, term.note) is None


@pytest.mark.cluster
def test_a_term_that_was_given_back_and_that_of_a_living_replica_are_left_alone(
    tmp_path: Path, channel: grpc.Channel, term: PublishedTerm
) -> None:
    with stand_in(tmp_path / "own") as replica:
        replica.publish(term)
        replica.tell("close")
        assert not alive(replica.guardian)
    with stand_in(tmp_path / "own") as replica:
        replica.publish(term)
        replica.tell("")
        replica.kill()
        replica.wait_until_gone()
    assert value_of(channel, term.record) == b"{}"


@pytest.mark.cluster
def test_a_guardian_that_was_stopped_goes_on_when_its_replica_is_gone(
    tmp_path: Path, channel: grpc.Channel, term: PublishedTerm
) -> None:
    """Also where the replica itself has stopped it, to end it by force, and was killed before it did."""
    with stand_in(tmp_path / "own") as replica:
        below = descendants(replica.guardian)
        replica.publish(term)
        hang(replica.guardian)
        os.kill(replica.guardian, signal.SIGTERM)
        replica.kill()
        replica.wait_until_gone()
        assert [pid for pid in below if alive(pid)] == []


def test_nothing_is_published_where_a_takeover_waits_for_the_lease() -> None:
    term_settings, held = ReplicaSettings(identity="a"), HeldTerm(5, 9)
    line = term_line(term_settings, ("127.0.0.1:1",), held)
    keys = Keys(term_settings.root)
    found = PublishedTerm.from_line(line)
    assert found is not None
    assert (found.record, found.epoch_key, found.note) == tuple(
        key.decode() for key in (keys.record, keys.epoch, keys.revocation)
    )
    assert (found.lease_id, found.epoch, found.endpoints) == (held.lease_id, held.epoch, ("127.0.0.1:1",))
    assert term_line(replace(term_settings, takeover="lease"), ("127.0.0.1:1",), held) == b"\n"
    assert term_line(replace(term_settings, election_profile="kube"), ("127.0.0.1:1",), held) == b"\n"
    assert term_line(replace(term_settings, election_profile="kube", takeover="evidence"), ("127.0.0.1:1",), held) == line
    assert term_line(term_settings, ("127.0.0.1:1",), None) == b"\n"
    assert PublishedTerm.from_line(b"") is None


def test_a_guardian_is_told_what_etcd_is_reached_with() -> None:
    endpoints = SecureEndpoints(("etcd.example:2379",), EtcdTls("/ca", "/crt", "/key", "etcd.example"))
    found = PublishedTerm.from_line(term_line(ReplicaSettings(identity="a"), endpoints, HeldTerm(5, 9)))
    assert found is not None and isinstance(found.endpoints, SecureEndpoints)
    assert (found.endpoints, found.endpoints.tls) == (endpoints, endpoints.tls)
