"""Commands that run processes: `up` from its start to its end, and one clear line wherever a start must fail."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.access.identity import IdentityKind
from rayched.client.contexts import ClientContext, remove_context, write_context
from rayched.pki.directory import PkiDirectory
from rayched.pki.issuing import leaf_request
from rayched.pki.tls_files import TlsFiles
from rayched.replica.cluster.free_ports import free_port
from tests.cli.cluster import Commands, a_pod_text, run_here, started, wait_until

pytestmark = pytest.mark.cluster

START_SECONDS_MAX = 60.0


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port: int = holder.getsockname()[1]
        yield port


def processes_with(text: str) -> list[int]:
    """The processes whose command line holds a text."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and int(directory.name) != os.getpid():
            try:
                command = (directory / "cmdline").read_bytes()
            except OSError:
                continue
            if text.encode() in command:
                found.append(int(directory.name))
    return found


@pytest.mark.row("B1", "B2", "B5")
def test_up_runs_a_cluster_until_it_is_told_to_stop_and_leaves_no_process(tmp_path: Path) -> None:
    port = free_port()
    names = ["namespace/default", "namespace/kube-system"]
    words = ["up", "--replicas", "1", "--port", str(port), "--data-dir", str(tmp_path), "--workers", "0"]
    with started(*words, errors=tmp_path / "errors") as up:
        assert up.line(START_SECONDS_MAX) == f"rayched is up at 127.0.0.1:{port}"
        asked = ["get", "namespaces", "-o", "name"]
        assert run_here(asked).lines == names, "without a flag"
        assert run_here(asked, None, {"RAYCHED_SERVER": f"127.0.0.1:{port}"}).lines == names
        # Another user of this host: no context, and no file of this one can be opened.
        stranger = {"RAYCHED_SERVER": f"127.0.0.1:{port}", "XDG_CONFIG_HOME": str(tmp_path / "stranger")}
        refused = run_here(asked, None, stranger)
        assert (refused.code, refused.out, len(refused.errors)) == (1, "", 1)
        assert "wants a certificate, and no context lists it" in refused.errors[0]
        assert open_to_others(tmp_path / "pki") == []
        assert len(processes_with(str(tmp_path))) >= 3
        second = run_here(["up", "--replicas", "1", "--port", str(free_port()), "--data-dir", str(tmp_path)])
        assert second.code == 1
        assert "is in use by the etcd with pid" in second.errors[-1]
        assert up.end(signal.SIGTERM, START_SECONDS_MAX) == 0
    wait_until(lambda: not processes_with(str(tmp_path)), "all processes of the cluster are gone")
    assert (tmp_path / "errors").read_text().splitlines()[-1] == "stopped"


def open_to_others(directory: Path) -> list[Path]:
    """What somebody else could read, write or enter."""
    found = [directory, *directory.rglob("*")]
    assert any(path.name == "tls.key" for path in found)
    return [path for path in found if path.stat().st_mode & 0o077]


def test_without_certificates_whoever_is_on_this_host_is_served_and_a_killed_replica_is_told_of(
    tmp_path: Path, configuration: Path
) -> None:
    port = free_port()
    words = ["up", "--replicas", "1", "--port", str(port), "--data-dir", str(tmp_path), "--workers", "0", "--insecure-loopback"]
    with started(*words, errors=tmp_path / "errors") as up:
        assert up.line(START_SECONDS_MAX) == f"rayched is up at 127.0.0.1:{port}"
        server = {"RAYCHED_SERVER": f"127.0.0.1:{port}"}
        asked = ["get", "namespaces", "-o", "name"]
        assert "namespace/default" in run_here(asked, None, server).lines
        # What an earlier cluster has left at this address.
        files = PkiDirectory.create(tmp_path / "earlier")
        record = files.issue(leaf_request(files.trust_domain, IdentityKind.USER, "admin"))
        context = ClientContext("earlier", (server["RAYCHED_SERVER"],), TlsFiles.within(Path(record.directory)))
        write_context(context, make_current=True)
        refused = run_here(asked, None, server)
        assert refused.code == 1 and "--context none goes without" in refused.errors[0]
        assert "namespace/default" in run_here([*asked, "--context", "none"], None, server).lines
        remove_context("earlier")
        assert not (tmp_path / "pki").exists()
        assert [path for path in configuration.rglob("*") if path.is_file()] == []
        (replica,) = processes_with(f"\x00replica\x00--listen\x00127.0.0.1:{port}\x00")
        os.kill(replica, signal.SIGKILL)
        told = f"replica 0 (127.0.0.1:{port}) was ended by SIGKILL; running are 0 of 1"
        wait_until(lambda: (tmp_path / "errors").read_text().count(told) == 1, "up says that its replica was killed")
        assert up.end(signal.SIGTERM, START_SECONDS_MAX) == 0
    assert (tmp_path / "errors").read_text().count(told) == 1


def test_up_tells_what_is_wrong_before_anything_starts(tmp_path: Path, busy_port: int) -> None:
    (tmp_path / "broken.yaml").write_text("a: [1,\n")
    (tmp_path / "file").write_text("")
    port, directory = str(free_port()), str(tmp_path / "data")
    table = {
        f"--port {busy_port} --data-dir {directory}": f"--port: cannot listen on 127.0.0.1:{busy_port}: Address already in use; ",
        f"--port {port} --http-port {busy_port} --data-dir {directory}": f"--http-port: cannot listen on 127.0.0.1:{busy_port}: ",
        f"--port {port} --timeout soon --data-dir {directory}": "--timeout 'soon': is no duration; ",
        f"--port {port} --log-format xml --data-dir {directory}": "--log-format xml: allowed are text and json",
        f"--port {port} --config {tmp_path}/none.yaml --data-dir {directory}": f"--config {tmp_path}/none.yaml: ",
        f"--port {port} --config {tmp_path}/broken.yaml --data-dir {directory}": f"{tmp_path}/broken.yaml:2: is not valid YAML",
        f"--port {port} --election-profile slow --data-dir {directory}": "--election-profile slow: allowed are fast and kube",
        f"--port {port} --etcd-root x --data-dir {directory}": "--etcd-root x: it starts with a slash",
        f"--port {port} --etcd-endpoints x --data-dir {directory}": "--etcd-endpoints 'x': an address is host:port",
        f"--port {port} --data-dir {tmp_path}/file/data": f"--data-dir {tmp_path}/file/data/up: Not a directory; ",
    }
    for words, said in table.items():
        result = run_here(["up", "--replicas", "1", *words.split()])
        # What the options alone tell is 2; ports, files and directories are something else.
        code = 2 if said.startswith(("--timeout", "--log-format", "--election-profile", "--etcd-")) else 1
        assert (result.code, result.out, len(result.errors)) == (code, "", 1), result
        assert result.errors[0].startswith(f"error: {said}")
    assert not processes_with(directory)


def test_up_that_gives_up_on_its_start_says_what_is_missing_and_leaves_no_process(tmp_path: Path) -> None:
    port = free_port()
    words = ["up", "--replicas", "1", "--port", str(port), "--data-dir", str(tmp_path), "--workers", "0", "--timeout", "1ms"]
    result = run_here(words)
    assert (result.code, result.out) == (1, "")
    expected = (
        rf"error: not up after \d+ s: 1 of 1 replica not ready yet \(127.0.0.1:{port}\); logs are in {tmp_path}/up; --timeout .*"
    )
    assert re.fullmatch(expected, result.errors[-1])
    wait_until(lambda: not processes_with(str(tmp_path)), "all processes of the cluster are gone")


def test_demo_tells_of_a_busy_port_before_anything_starts(tmp_path: Path, busy_port: int) -> None:
    (tmp_path / "pod.yaml").write_text(a_pod_text("one"))
    result = run_here(["demo", "--port", str(busy_port), "--examples", str(tmp_path)])
    assert (result.code, result.out) == (1, "")
    (line,) = result.errors
    assert line.startswith(f"error: --port: cannot listen on 127.0.0.1:{busy_port}: Address already in use; ")


def test_a_reader_that_has_seen_enough_ends_the_command_without_a_word(rayched: Commands, tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    with started("get", "nodes", "-w", environment={"RAYCHED_SERVER": rayched.server}, errors=errors, read=False) as watch:
        output = watch.process.stdout
        assert output is not None
        assert output.readline().split()[0] == "NAME"
        output.close()

        def ended() -> bool:
            # It notices when it writes the next line.
            rayched.ok("label", "node", "node-007", f"seen={time.monotonic_ns()}", "--overwrite")
            return watch.process.poll() is not None

        wait_until(ended, "the command has ended")
        assert watch.process.returncode not in (0, None)
    assert errors.read_text() == ""
    rayched.ok("label", "node", "node-007", "seen-")
