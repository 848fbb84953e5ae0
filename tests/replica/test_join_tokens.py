"""Join tokens with real processes: a node joins, runs and renews; the leader is killed between the signing and the answer."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.agent.own_certificate import JoinFault, NodeCertificate
from rayched.pki.certificates import facts_of, read_certificates
from rayched.pki.client_token import TokenFiles
from rayched.pki.directory import PkiDirectory
from rayched.pki.tls_files import TlsFiles
from rayched.v1.core_pb2 import Node
from tests.cli.cluster import Result, run_here
from tests.replica.test_certificates import home, made, running
from tests.replica.test_tokens import ok, token_address
from tests.server.serving import until
from tests.server.test_join_tokens import a_request

pytestmark = [pytest.mark.cluster, pytest.mark.long]

__all__ = ["home", "made"]

FLAGS = ["--token-listen", "127.0.0.1:0"]


def commands_at(address: str) -> Callable[..., Result]:
    return lambda *words: run_here(words, None, {"RAYCHED_SERVER": address})


def serial_at(path: Path) -> int:
    return facts_of(read_certificates(path.read_bytes(), str(path))[0]).serial


@contextmanager
def agent(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A real agent, which is ended behind it."""
    command = [sys.executable, "-m", "rayched.cli.main", "node", *words]
    environment = {**os.environ, "RAYCHED_CONTEXT": ""}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.mark.row("B10", "B44")
def test_a_node_joins_with_a_token_and_goes_on_with_its_certificate(tmp_path: Path, made: PkiDirectory) -> None:
    with running(tmp_path / "cluster", made, FLAGS) as (cluster, client):
        command, token, root = commands_at(cluster.addresses[0]), tmp_path / "worker.token", tmp_path / "root"
        ok(command("pki", "join-token", "node", "worker-1", "--ttl", "10m", "--out", str(token)))
        secret = token.read_text().strip()
        words = ["worker-1", "--server", ",".join(cluster.addresses), "--root-dir", str(root), "--join-token-file", str(token)]
        words += ["--join-ca-file", str(made.path / "ca.crt"), "--join-server", token_address(cluster.replicas[1])]
        until(lambda: is_known(token_address(cluster.replicas[1]), TokenFiles(made.path / "ca.crt", token)))
        with agent(*words) as process:
            until(lambda: is_there(client, "worker-1"), 60.0)
            shown = Path(f"/proc/{process.pid}/cmdline").read_bytes() + Path(f"/proc/{process.pid}/environ").read_bytes()
            assert secret.encode() not in shown
        serial = serial_at(root / "pki" / "tls.crt")
        assert (root / "pki" / "tls.key").stat().st_mode & 0o777 == 0o600
        # Started again it has what it needs, though the token is spent and gone.
        token.unlink()
        with agent(*words):
            until(lambda: is_there(client, "worker-1", ready=True), 60.0)
        assert serial_at(root / "pki" / "tls.crt") == serial
        # And renews that with itself.
        own = NodeCertificate(root, "worker-1")
        own._endpoints = cluster.addresses
        time.sleep(max(0.0, 61.0 - (time.time() - (root / "pki" / "tls.crt").stat().st_mtime)))
        own.renew()
        assert serial_at(root / "pki" / "tls.crt") != serial
        with Client(context=own.context) as renewed:
            assert renewed.who_am_i().identity == f"spiffe://{made.trust_domain}/node/worker-1"
        for replica in (0, 1):
            logs = (tmp_path / "cluster" / f"replica-{replica}" / "audit.jsonl").read_text()
            logs += cluster.replicas[replica].log_file.read_text()
            assert secret[14:] not in logs


def is_there(client: Client, name: str, *, ready: bool = False) -> bool:
    try:
        found = client.get(Node, name)
    except ApiError:
        return False
    return not ready or any(one.type == "Ready" and one.status == "True" for one in found.status.conditions)


def is_known(address: str, files: TokenFiles) -> bool:
    """Whether the replica there has the token, which is good for no question but one."""
    with Client(address, tls=files) as client:
        try:
            client.who_am_i()
        except ApiError as error:
            return error.code is grpc.StatusCode.PERMISSION_DENIED
    return False


@pytest.mark.row("B44")
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_leader_killed_between_signing_and_answer_leaves_the_token_usable_at_most_once(
    tmp_path: Path, made: PkiDirectory, is_committed: bool
) -> None:
    """`is_committed`: etcd gets to write what the leader sent; else the leader is gone before it could send it."""
    with running(tmp_path / "cluster", made, FLAGS) as (cluster, client):
        token = tmp_path / "worker.token"
        ok(commands_at(cluster.addresses[0])("pki", "join-token", "node", "worker-1", "--out", str(token)))
        files, ca = TokenFiles(made.path / "ca.crt", token), made.path / "ca.crt"
        leader = cluster.replica_at(client.leader().address)
        other = next(one for one in cluster.replicas if one is not leader)
        places = {one.address: token_address(one) for one in cluster.replicas}
        for place in places.values():
            until(lambda asked=place: is_known(asked, files))  # type: ignore[misc]
        before = (made.path / "issued").read_text()
        lock = os.open(made.path / "lock", os.O_WRONLY)
        assert cluster.etcd is not None and cluster.etcd.pid is not None
        etcd = cluster.etcd.pid
        try:
            # The leader has read the token and waits for the authority's list; then etcd is stopped, and the list is free.
            fcntl.flock(lock, fcntl.LOCK_EX)
            with ThreadPoolExecutor(1) as pool, Client(places[leader.address], tls=files, timeout_seconds=30.0) as joining:
                answer = pool.submit(joining.sign_certificate, a_request()[1], f"spiffe://{made.trust_domain}/node/worker-1")
                until(lambda: waits_for(made.path / "lock", leader.pid), 20.0)
                os.kill(etcd, signal.SIGSTOP)
                os.close(lock)
                lock = -1
                until(lambda: (made.path / "issued").read_text() != before, 20.0)
                if is_committed:
                    # What it sent is in etcd's socket, and is done as soon as etcd goes on.
                    time.sleep(1.0)
                leader.signal(signal.SIGKILL)
                leader.wait(10.0)
                os.kill(etcd, signal.SIGCONT)
                with pytest.raises(ApiError):
                    answer.result(90)
        finally:
            os.kill(etcd, signal.SIGCONT)
            if lock >= 0:
                os.close(lock)
        uses = [used(tmp_path / f"use-{number}", places[other.address], files) for number in range(3)]
        assert sum(uses) <= 1 and not any(uses[1:]), uses
        with Client(other.address, tls=admin_of(made), timeout_seconds=30.0) as admin:
            assert not [one for one in admin.tokens() if one.subject.endswith("/node/worker-1")]
        assert ca.exists()


def used(root: Path, place: str, files: TokenFiles) -> bool:
    """Whether a node gets its certificate with it."""
    root.mkdir()
    deadline = time.monotonic() + 30.0
    while True:
        try:
            NodeCertificate(root, "worker-1").join([place], files)
        except JoinFault as fault:
            if "UNAVAILABLE" not in str(fault) or time.monotonic() > deadline:
                return False
            time.sleep(0.5)
        else:
            return True


def admin_of(made: PkiDirectory) -> TlsFiles:
    return TlsFiles.within(made.path / "user" / "admin")


def waits_for(path: Path, pid: int) -> bool:
    """Whether the process waits for the lock of a file."""
    inode = path.stat().st_ino
    return any(
        "->" in line and f" {pid} " in line and line.split()[6].endswith(f":{inode}")
        for line in Path("/proc/locks").read_text().splitlines()
    )
