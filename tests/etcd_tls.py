"""A real etcd that wants TLS and a certificate, as an external one does; one process, ended by who started it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from leader.channel import SecureEndpoints, open_channel
from leader.tls_channel import EtcdTls
from rayched.pki.authority import Authority
from rayched.pki.tls_files import TlsFiles
from rayched.replica.cluster.free_ports import free_ports
from rayched.replica.etcd.etcd_binary import etcd_environment, find_etcd
from rayched.replica.ray.processes import dying_with_us
from rayched.store.errors import StoreError
from rayched.store.io.client import StoreClient
from tests.pki.made import CLIENT, a_pair
from tests.runbook import execute, steps

SERVER_NAME = "etcd.example"
USER = "somebody"
"""The common name of `a_client_of_etcd`: etcd goes by that."""
_READY_SECONDS_MAX = 30.0


def etcd_tls(files: TlsFiles, server_name: str = "") -> EtcdTls:
    return EtcdTls(str(files.ca), str(files.certificate), str(files.key), server_name)


def a_client_of_etcd(authority: Authority, directory: Path) -> TlsFiles:
    """Its certificate, or a new one in the place of the old."""
    return a_pair(authority, ["spiffe://rayched-0a1b2c3d/etcd/rayched"], [CLIENT]).write(directory)


@contextmanager
def etcd_over_tls(directory: Path, authority: Authority) -> Iterator[str]:
    """Its endpoint, https://127.0.0.1:PORT."""
    files = a_pair(authority, hosts=["127.0.0.1", SERVER_NAME]).write(directory / "server")
    client, peer = free_ports(2)
    endpoint = f"https://127.0.0.1:{client}"
    command = [
        *(str(find_etcd().path), "--name", "a", "--data-dir", str(directory / "data"), "--unsafe-no-fsync"),
        *("--listen-client-urls", endpoint, "--advertise-client-urls", endpoint, "--enable-grpc-gateway=false"),
        *("--listen-peer-urls", f"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"),
        *("--initial-cluster", f"a=http://127.0.0.1:{peer}"),
        *("--cert-file", str(files.certificate), "--key-file", str(files.key)),
        *("--client-cert-auth", "--trusted-ca-file", str(files.ca)),
    ]
    with (directory / "etcd.log").open("wb") as log:
        process = subprocess.Popen(dying_with_us(command), stdout=log, stderr=log, env=etcd_environment())
    try:
        _until_ready(SecureEndpoints([endpoint], etcd_tls(a_client_of_etcd(authority, directory / "ready"))), process)
        yield endpoint
    finally:
        process.terminate()
        process.wait(10)


def _until_ready(endpoints: SecureEndpoints, process: subprocess.Popen[bytes]) -> None:
    ends_at = time.monotonic() + _READY_SECONDS_MAX
    with open_channel(endpoints) as channel:
        while True:
            try:
                StoreClient(channel).revision()
                return
            except (StoreError, grpc.RpcError):
                assert process.poll() is None, f"etcd ended with {process.returncode}"
                assert time.monotonic() < ends_at, "etcd is not ready"
                time.sleep(0.05)


def enable_users(endpoint: str, files: TlsFiles) -> None:
    """One who may use /rayched/ and no more, and root, who has to be there: by the lines of docs/operations.md."""
    script = steps("Users of etcd").replace("NAME=rayched\n", f"NAME={USER}\n")
    assert USER in script
    tls = {"ETCDCTL_CACERT": files.ca, "ETCDCTL_CERT": files.certificate, "ETCDCTL_KEY": files.key}
    execute(script, find_etcd(), endpoint, {name: str(path) for name, path in tls.items()})
