"""A Ray cluster that takes whoever comes is refused, by a replica and by who puts agents on its nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.replica.cluster.free_ports import free_port
from rayched.replica.ray.open_ray import takes_whoever_comes
from rayched.testing.raylets import RayletCluster

pytestmark = [pytest.mark.cluster, pytest.mark.long]
SECONDS_MAX = 120.0


@pytest.fixture(scope="module")
def open_ray() -> Iterator[RayletCluster]:
    raylets = RayletCluster(1, 1)
    raylets.environment["RAY_AUTH_MODE"] = "disabled"
    del raylets.environment["RAY_AUTH_TOKEN"]
    with raylets:
        yield raylets


@pytest.mark.row("B111")
@pytest.mark.parametrize(
    "words",
    [
        ("replica", "--listen", "127.0.0.1:0", "--http-address", "off", "--insecure-loopback"),
        ("node", "--server", "127.0.0.1:1", "--context", "none"),
    ],
    ids=["replica", "node"],
)
def test_a_ray_without_a_token_is_refused_in_one_line(open_ray: RayletCluster, tmp_path: Path, words: tuple[str, ...]) -> None:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-m", "rayched.cli.main", *words, "--ray-address", open_ray.address],
        env={**environment, "RAYCHED_HOME": str(tmp_path / "home"), "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    [line] = done.stderr.splitlines()
    assert done.returncode == 1 and line.startswith(f"error: --ray-address {open_ray.address}: this Ray takes whoever comes")
    assert "RAY_AUTH_MODE=token" in line
    assert not (tmp_path / "home").exists(), "nothing was started"


def test_one_with_a_token_and_what_does_not_answer_are_not_taken_for_open() -> None:
    with RayletCluster(1, 1) as raylets:
        assert not takes_whoever_comes(raylets.address)
    assert not takes_whoever_comes(f"127.0.0.1:{free_port()}")
