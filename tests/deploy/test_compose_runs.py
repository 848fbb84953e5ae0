"""What compose.yaml says, run without an engine: its script issues the certificates, three real members of etcd, a real replica
and hollow nodes take them with the settings of the file. Only places differ, as all of it is on one host here: directories for
volumes, and loopback with other ports for the names of services.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from leader.channel import SecureEndpoints, open_channel
from leader.tls_channel import EtcdTls
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.pki.certificates import facts_of, read_certificates
from rayched.pki.directory import PkiDirectory
from rayched.pki.tls_files import TlsFiles
from rayched.replica.cluster.free_ports import free_ports
from rayched.replica.etcd.etcd_binary import etcd_environment, find_etcd
from rayched.replica.ray.processes import dying_with_us
from rayched.store.errors import StoreError
from rayched.store.io.client import StoreClient

FOLDER = Path(__file__).parents[2] / "deploy" / "compose"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
ETCDS = ["etcd-1", "etcd-2", "etcd-3"]
REPLICAS = ["replica-1", "replica-2", "replica-3"]
OWN = f"{os.getuid()}:{os.getgid()}"
READY_SECONDS_MAX = 120.0
COMMAND = (sys.executable, "-m", "rayched.cli.main")


def issue(place: Path) -> None:
    """Runs the script, with the command of this checkout."""
    bin_directory = place.parent / "bin"
    bin_directory.mkdir(exist_ok=True)
    (bin_directory / "rayched").write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    (bin_directory / "rayched").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{bin_directory}:{os.environ['PATH']}",
        "HOME": str(place.parent),
        "TLS": str(place),
        "OWNER": OWN,
    }
    environment.pop("XDG_CONFIG_HOME", None)
    done = subprocess.run(
        ["/bin/sh", str(FOLDER / "certificates.sh")], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Below it a directory for each volume."""
    place = tmp_path_factory.mktemp("compose") / "tls"
    place.mkdir()
    issue(place)
    return place


def serial(directory: Path) -> int:
    return facts_of(read_certificates((directory / "tls.crt").read_bytes(), "tls.crt")[0]).serial


def test_every_file_that_the_compose_file_names_is_issued_into_the_volume_of_its_service(tls: Path) -> None:
    seen = 0
    for name, service in SERVICES.items():
        mounts = dict(volume.split(":")[:2] for volume in service["volumes"])
        if name == "certificates":
            continue
        (volume,) = [volume for volume, place in mounts.items() if place == "/tls"]
        shown = yaml.safe_dump([service.get("command"), service.get("environment"), service.get("healthcheck")], width=1000)
        for path in re.findall(r"/tls/([\w./-]+)", shown):
            assert (tls / volume.removesuffix("-tls") / path).is_file(), (name, path)
            seen += 1
    assert seen > 40
    issued = {volume.partition(":")[2] for volume in SERVICES["certificates"]["volumes"] if volume.endswith(":ro") is False}
    assert issued == {f"/tls/{directory.name}" for directory in tls.iterdir()}


def test_nobody_but_its_owner_reads_a_file_and_no_service_has_a_key_of_an_authority(tls: Path) -> None:
    files = [path for path in tls.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {path.parent.parent.name for path in files if path.name == "ca.key"} == {"authorities"}
    mounted = {name: [volume.split(":")[0] for volume in service["volumes"]] for name, service in SERVICES.items()}
    assert [name for name, volumes in mounted.items() if "authorities" in volumes] == ["certificates"]


def test_a_certificate_of_the_cluster_is_none_of_etcds(tls: Path) -> None:
    etcd, cluster = (PkiDirectory(tls / "authorities" / name) for name in ("etcd", "cluster"))
    assert etcd.trust_domain != cluster.trust_domain and etcd.bundle != cluster.bundle
    for name in REPLICAS:
        assert (tls / name / "api" / "ca.crt").read_bytes() == cluster.bundle
        assert (tls / name / "etcd" / "ca.crt").read_bytes() == etcd.bundle
    uris = {uri.split("/", 3)[3] for one in cluster.issued() for uri in [one.uri]}
    assert uris == {"replica/replica-1", "replica/replica-2", "replica/replica-3", "user/admin", "nodes/hollow"}


def test_running_the_script_again_renews_all_and_keeps_the_authorities(tmp_path: Path) -> None:
    place = tmp_path / "tls"
    place.mkdir()
    issue(place)
    trusted = (place / "admin" / "user" / "ca.crt").read_bytes()
    before = {path.parent: serial(path.parent) for path in place.rglob("tls.crt")}
    issue(place)
    assert (place / "admin" / "user" / "ca.crt").read_bytes() == trusted
    assert len(before) == 11 and all(serial(directory) != number for directory, number in before.items())


# ---------------------------------------------------------------------------------------------------------- a real cluster


class ComposePlaces:
    """Where a service's places of the compose file are here."""

    def __init__(self, tls: Path, base: Path) -> None:
        self.tls, self.base = tls, base
        names = [(name, port) for name in ETCDS for port in (2379, 2380, 2381)] + [("replica-1", 7420), ("replica-1", 7520)]
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))

    def here(self, text: str, service: str) -> str:
        text = text.replace("/tls/", f"{self.tls / service}/").replace("/etcd-data", str(self.base / service))
        for (name, port), own in self.ports.items():
            text = text.replace(f"{name}:{port}", f"127.0.0.1:{own}")
            if name == service:
                if port == 7520:
                    # 127.0.0.1 in another way, which does not go without TLS as loopback does.
                    text = text.replace(f"0.0.0.0:{port}", f"127.1:{own}")
                text = text.replace(f"0.0.0.0:{port}", f"127.0.0.1:{own}").replace(f"127.0.0.1:{port}", f"127.0.0.1:{own}")
        return text

    def endpoints(self, files: TlsFiles) -> SecureEndpoints:
        tls = EtcdTls(str(files.ca), str(files.certificate), str(files.key), "etcd")
        return SecureEndpoints([f"https://127.0.0.1:{self.ports[name, 2379]}" for name in ETCDS], tls)


def until(what: Callable[[], object], said: Callable[[], str]) -> None:
    ends_at = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            what()
            return
        except (AssertionError, StoreError, ApiError, grpc.RpcError):
            assert time.monotonic() < ends_at, said()
            time.sleep(0.2)


@pytest.fixture(scope="module")
def places(tls: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposePlaces]:
    """The members of etcd run."""
    found = ComposePlaces(tls, tmp_path_factory.mktemp("members"))
    with ExitStack() as ends:
        for name in ETCDS:
            environment = {key: found.here(text, name) for key, text in SERVICES[name]["environment"].items()}
            _start(ends, [str(find_etcd().path)], {**etcd_environment(), **environment}, found.base / f"{name}.log")
        with closing(open_channel(found.endpoints(TlsFiles.within(tls / "replica-1" / "etcd")))) as channel:
            until(StoreClient(channel).revision, (found.base / "etcd-1.log").read_text)
        yield found


def _start(ends: ExitStack, command: Sequence[str], environment: dict[str, str], log: Path) -> None:
    file = ends.enter_context(log.open("wb"))
    process = subprocess.Popen(dying_with_us(list(command)), env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def end() -> None:
        process.terminate()
        process.wait(20)

    ends.callback(end)


@pytest.mark.cluster
def test_etcd_serves_the_replicas_and_nobody_with_a_certificate_of_the_cluster(places: ComposePlaces) -> None:
    for name in REPLICAS:
        with closing(open_channel(places.endpoints(TlsFiles.within(places.tls / name / "etcd")))) as channel:
            assert StoreClient(channel).revision() > 0
    admin, etcd = TlsFiles.within(places.tls / "admin" / "user"), TlsFiles.within(places.tls / "replica-1" / "etcd")
    strangers = TlsFiles(etcd.ca, admin.certificate, admin.key)
    with closing(open_channel(places.endpoints(strangers))) as channel, pytest.raises(StoreError):
        StoreClient(channel).revision()


@pytest.mark.cluster
@pytest.mark.long
def test_a_replica_is_ready_as_its_health_check_asks_and_the_hollow_nodes_register(places: ComposePlaces, tmp_path: Path) -> None:
    service, environment = SERVICES["replica-1"], {**os.environ, "HOME": str(tmp_path), "RAYCHED_HOME": str(tmp_path / "home")}
    words = [places.here(word, "replica-1") for word in service["command"]]
    program = places.here(service["healthcheck"]["test"][-1], "replica-1")
    servers = f"127.0.0.1:{places.ports['replica-1', 7420]}"
    context = places.tls / "admin" / "user" / "context.yaml"
    with ExitStack() as ends:
        _start(ends, [*COMMAND, *words, "--workers=0"], environment, tmp_path / "replica.log")

        def is_ready() -> None:
            assert subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False).returncode == 0

        until(is_ready, (tmp_path / "replica.log").read_text)
        binding = [places.here(word, "hollow-binding") for word in SERVICES["hollow-binding"]["command"]]
        said = {key: places.here(text, "admin") for key, text in SERVICES["hollow-binding"]["environment"].items()}
        assert said["RAYCHED_CONTEXT"] == str(context)
        granted = subprocess.run(
            [*COMMAND, *binding],
            env={**environment, **said, "RAYCHED_SERVER": servers},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert granted.returncode == 0, granted.stderr
        hollow = [places.here(word, "hollow") for word in SERVICES["hollow-nodes"]["command"]]
        _start(ends, [*COMMAND, *hollow, "--server", servers], environment, tmp_path / "hollow.log")
        with Client(servers, context=str(context)) as client:

            def all_are_there() -> None:
                assert len(list(client.list("nodes"))) == 100

            until(all_are_there, (tmp_path / "hollow.log").read_text)
        with Client(servers, insecure=True, timeout_seconds=5.0) as client, pytest.raises(ApiError):
            client.get("node", "node-000")
