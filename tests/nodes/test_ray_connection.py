"""`rayched node --ray-address` against a Ray that does not take it: one line that says why."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping

import pytest

from rayched.testing.raylets import RayletCluster

SECONDS_MAX = 200.0
_PROGRAM = "import sys; from rayched.cli.main import main; sys.argv[0] = 'rayched'; main()"
_OTHER_VERSION = f"import ray; ray.__version__ = '1.0.0'; {_PROGRAM}"


@pytest.fixture(scope="module")
def raylets() -> Iterator[RayletCluster]:
    with RayletCluster(1, 1) as found:
        yield found


def refused(address: str, environment: Mapping[str, str], program: str = _PROGRAM) -> str:
    """The one line; exit code 1."""
    own = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", program, "node", "--ray-address", address, "--server", "127.0.0.1:1"],
        env={**own, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and len(lines) == 1 and not done.stdout, (done.returncode, done.stdout, done.stderr)
    assert lines[0].startswith(f"error: --ray-address {address}: ")
    return lines[0].removeprefix(f"error: --ray-address {address}: ")


@pytest.mark.cluster
def test_without_a_token(raylets: RayletCluster) -> None:
    assert refused(raylets.address, {}).startswith("it wants a token that this command does not have")


@pytest.mark.long
@pytest.mark.cluster
def test_with_another_token(raylets: RayletCluster) -> None:
    wrong = {**raylets.environment, "RAY_AUTH_TOKEN": "0" * 64}
    assert refused(raylets.address, wrong).startswith("it wants a token that this command does not have")


@pytest.mark.cluster
def test_without_a_token_where_the_mode_says_that_there_is_one(raylets: RayletCluster) -> None:
    nowhere = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/nowhere/token", "HOME": "/nowhere"}
    assert refused(raylets.address, nowhere).startswith("it wants a token that this command does not have")


@pytest.mark.cluster
def test_of_another_version(raylets: RayletCluster) -> None:
    told = refused(raylets.address, raylets.environment, _OTHER_VERSION)
    assert told.startswith("Version mismatch: The cluster was started with: Ray: 2.") and "Ray: 1.0.0" in told


@pytest.mark.long
@pytest.mark.cluster
def test_something_that_is_no_ray(raylets: RayletCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                peer.close()

        threading.Thread(target=hang_up, daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert refused(address, raylets.environment)
        listener.shutdown(socket.SHUT_RDWR)
