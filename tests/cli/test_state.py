"""What `rayched up` keeps between two starts, and the two ways to be rid of it."""

from __future__ import annotations

import fcntl
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from rayched.cli.cluster import up_command
from rayched.replica.cluster.free_ports import free_port
from tests.cli.cluster import a_pod_text, run_here, started
from tests.cli.test_processes import START_SECONDS_MAX


@pytest.mark.long
@pytest.mark.cluster
def test_up_goes_on_with_what_there_is_and_fresh_and_reset_are_rid_of_it(tmp_path: Path) -> None:
    port, home = free_port(), {"RAYCHED_HOME": str(tmp_path)}
    pods = ["get", "pods", "-o", "name"]
    words = ["up", "--replicas", "1", "--port", str(port), "--workers", "0"]
    with started(*words, environment=home, errors=tmp_path / "first") as up:
        up.line(START_SECONDS_MAX)
        assert run_here(["apply", "-f", "-"], a_pod_text("kept")).code == 0
        refused = run_here(["reset", "--yes"], None, home)
        assert (refused.code, len(refused.errors)) == (1, 1)
        assert f"error: a cluster runs on {tmp_path / 'up'}; end it first" in refused.errors[0]
        assert run_here(pods).lines == ["pod/kept"]
        assert up.end(signal.SIGTERM, START_SECONDS_MAX) == 0
    for option, found in (("", ["pod/kept"]), ("--fresh", [])):
        with started(*words, *option.split(), environment=home, errors=tmp_path / "next") as up:
            up.line(START_SECONDS_MAX)
            # With the context of the first start.
            assert run_here(pods).lines == found, option
            assert up.end(signal.SIGTERM, START_SECONDS_MAX) == 0
    # One line against the etcd that is there, where it is one to warn about, and after the start.
    said = (tmp_path / "next").read_text().splitlines()
    warnings = [line for line in said if line.startswith("warning: etcd")]
    assert len(warnings) <= 1 and said.index(next(line for line in said if line.startswith("etcd is at"))) < min(
        map(said.index, warnings), default=len(said)
    )
    assert (tmp_path / "up" / "etcd").exists()
    asked = run_here(["reset"], None, home)
    assert asked.code == 2 and "--yes says that you want that" in asked.errors[0]
    assert run_here(["reset", "--yes"], None, home).lines == [f"{tmp_path / 'up'} is removed"]
    assert not (tmp_path / "up").exists() and (tmp_path / "pki").exists()
    assert run_here(["reset"], None, home).lines == [f"{tmp_path / 'up'} holds nothing"]


def test_reset_refuses_while_a_cluster_runs_before_it_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "up"
    database = directory / "etcd" / "member" / "snap" / "db"
    database.parent.mkdir(parents=True)
    database.write_bytes(b"")
    # Somebody sits there, and would say yes.
    monkeypatch.setattr(up_command, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    with database.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for words in (["reset"], ["reset", "--yes"]):
            refused = run_here(words, "y\n", {"RAYCHED_HOME": str(tmp_path)})
            assert (refused.code, refused.out) == (1, "")
            assert refused.errors == [f"error: a cluster runs on {directory}; end it first, with Ctrl-C where it was started"]
    assert database.exists()


def test_an_etcd_of_somebody_elses_is_not_emptied() -> None:
    refused = run_here(["up", "--fresh", "--etcd-endpoints", "127.0.0.1:2379"])
    assert refused.code == 2
    assert "--fresh cannot be combined with --etcd-endpoints" in refused.errors[0]
