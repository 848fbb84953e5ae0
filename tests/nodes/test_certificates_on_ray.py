"""Agents on the nodes of a Ray cluster have certificates: each that of its own node, whose key never left its host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from rayched.client import contexts
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.pki.certificates import facts_of, read_certificates
from rayched.pki.directory import PkiDirectory
from rayched.pki.tls_files import TlsFiles
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.cluster.local_pki import LocalPki
from rayched.replica.cluster.local_start import wait_until_up
from rayched.testing.raylets import RayletCluster, RayletShape
from rayched.v1.core_pb2 import Node
from tests.nodes.real_node import until

SECONDS_MAX = 240.0


def ready(client: Client) -> list[str]:
    found = [one for one in client.list("nodes") if isinstance(one, Node)]
    return [
        one.metadata.name
        for one in found
        if any(item.type == "Ready" and item.status == "True" for item in one.status.conditions)
    ]


@pytest.mark.cluster
@pytest.mark.long
def test_an_agent_on_a_node_of_ray_is_its_node_and_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What whoever starts Ray could show is not the agents'.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    pki = LocalPki(tmp_path / "pki", 1)
    authority, root, log = PkiDirectory(tmp_path / "pki"), tmp_path / "nodes", tmp_path / "driver.log"
    root.mkdir()
    with (
        RayletCluster(1, 2, (RayletShape({}, {}, 1 << 30),)) as raylets,
        LocalCluster(tmp_path / "up", 1, unsafe_no_fsync=True, options=("--workers", "0", "--no-compact"), pki=pki) as cluster,
        cluster.client() as client,
    ):
        wait_until_up(cluster, client, SECONDS_MAX, print)
        context = tmp_path / "admin.yaml"
        contexts.write_context_file(context, cluster.addresses, pki.admin)
        command = [
            *(sys.executable, "-m", "rayched.cli.main", "node", "--ray-address", raylets.address, "--root-dir", str(root)),
            *("--context", str(context), "--pki-dir", str(authority.path), "--heartbeat", "0.5"),
            *("--allow-root-pods", "--pod-user", str(os.geteuid()), "--shutdown-grace-period", "1s"),
        ]
        with log.open("wb") as file:
            driver = subprocess.Popen(command, stdout=file, stderr=file, env=os.environ | raylets.environment)
        try:
            [name] = until(lambda: ready(client), f"a node of Ray is ready: {log}", SECONDS_MAX)  # type: ignore[misc]
            files = TlsFiles.within(root / f"{name}.tls")
            facts = facts_of(read_certificates(files.certificate.read_bytes(), "tls.crt")[0])
            assert facts.uris == (f"spiffe://{authority.trust_domain}/node/{name}",)
            assert [one.uri for one in authority.in_use() if int(one.serial, 16) == facts.serial] == list(facts.uris)
            with Client(cluster.addresses, tls=files, timeout_seconds=20.0) as agent:
                assert agent.who_am_i().identity == facts.uris[0]
                assert isinstance(agent.get("node", name), Node)
                for refused in (
                    lambda: agent.get("node", "another"),
                    lambda: agent.list("pods"),
                    lambda: agent.delete("node", name),
                ):
                    with pytest.raises(ApiError) as fault:
                        list(refused() or ())  # type: ignore[call-overload]
                    assert fault.value.code is grpc.StatusCode.PERMISSION_DENIED
        except BaseException:
            print(log.read_text(), *(path.read_text() for path in root.glob("*.log")))
            raise
        finally:
            driver.terminate()
            try:
                driver.wait(120)
            finally:
                driver.kill()
        assert driver.returncode == 0, log.read_text()
