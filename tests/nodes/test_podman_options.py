"""What podman is told of a container, and what does not reach it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rayched.nodes.agent.drivers.podman_client import PodmanClient
from rayched.nodes.agent.drivers.podman_driver import PodmanDriver, lowest_score
from rayched.nodes.agent.drivers.podman_options import environment_by_file
from rayched.nodes.agent.process_specs import AttemptPlace, ConfigurationFault, RunPolicy
from rayched.v1.core_pb2 import Pod
from tests.nodes.driven_pod import IMAGE
from tests.nodes.fake_podman import installed

ROOT = RunPolicy(0, 0)


def a_pod(image: str = IMAGE, command: tuple[str, ...] = ("sleep", "1")) -> Pod:
    pod = Pod()
    pod.metadata.name = pod.metadata.uid = "web"
    pod.spec.containers.add(name="main", image=image, command=command)
    return pod


def place(**volumes: str) -> AttemptPlace:
    return AttemptPlace("n", "10.0.0.1", 2, "/work", "/log", volumes)


def options_of(pod: Pod, policy: RunPolicy = ROOT, **volumes: str) -> list[str]:
    """What `podman create` is told."""
    driver = PodmanDriver(PodmanClient("/usr/bin/podman", {}), policy, Path("/node"))
    found: list[str] = driver.specify(pod, pod.spec.containers[0], place(**volumes))["create"]["options"]
    return found


def value_of(options: list[str], name: str) -> str | None:
    return options[options.index(name) + 1] if name in options else None


def test_podman_is_told_of_limits_mounts_and_the_program() -> None:
    pod = a_pod(command=("run", "$(GREETING)"))
    main = pod.spec.containers[0]
    main.args.extend(["-v", "$(GREETING)"])
    main.env.add(name="GREETING", value="hello you")
    main.working_dir = "/srv"
    main.resources.limits["memory"].string = "64Mi"
    main.resources.limits["cpu"].string = "1500m"
    main.resources.requests["cpu"].string = "500m"
    pod.spec.volumes.add(name="data")
    main.volume_mounts.add(name="data", mount_path="/var/data", read_only=True)
    driver = PodmanDriver(PodmanClient("/usr/bin/podman", {}), ROOT, Path("/node"))
    spec = driver.specify(pod, main, place(data='/node/a,"b"'))
    options = spec["create"]["options"]
    assert {name: value_of(options, name) for name in ("--name", "--memory", "--memory-swap", "--cpu-period", "--cpu-quota")} == {
        "--name": "rayched_web_main_2",
        "--memory": f"{64 << 20}b",
        "--memory-swap": f"{64 << 20}b",
        "--cpu-period": "100000",
        "--cpu-quota": "150000",
    }
    assert value_of(options, "--cpu-shares") == "512" and value_of(options, "--workdir") == "/srv"
    assert value_of(options, "--mount") == 'type=bind,"source=/node/a,""b""",target=/var/data,readonly'
    assert value_of(options, "--entrypoint") == '["run", "hello you"]'
    assert spec["create"]["arguments"] == ["-v", "hello you"]
    variables = spec["create"]["environment"]
    assert variables["RAYCHED_VOLUME_DATA"] == "/var/data" and variables["RAYCHED_MEMORY_LIMIT"] == str(64 << 20)
    assert not {"HOME", "PATH", "TMPDIR", "RAYCHED_WORK_DIR"} & variables.keys(), "those are the image's"
    assert "--http-proxy=false" in options and value_of(options, "--pull") == "never"


@pytest.mark.parametrize(
    ("controllers", "told"),
    [
        ('["cpuset", "cpu", "memory"]', {"--memory", "--cpu-shares", "--cpu-quota"}),
        ('["memory", "pids"]', {"--memory", "--pids-limit"}),
        ("[]", set()),
        ("null", set()),
    ],
)
def test_limits_that_podman_cannot_keep_here_are_not_asked_of_it(tmp_path: Path, controllers: str, told: set[str]) -> None:
    program = installed(tmp_path / "fake")
    (program.parent / "controllers").write_text(controllers)
    driver = PodmanDriver(PodmanClient(str(program)), replace(ROOT, pod_pids=100), tmp_path)
    assert driver.fingerprint().version == "4.9.9-fake"
    assert driver.capabilities.limits is ("--memory" in told)
    pod = a_pod()
    for resource, text in (("memory", "64Mi"), ("cpu", "1")):
        pod.spec.containers[0].resources.limits[resource].string = text
    options = driver.specify(pod, pod.spec.containers[0], place())["create"]["options"]
    assert told == set(options) & {"--memory", "--cpu-shares", "--cpu-quota", "--pids-limit"}
    if "--pids-limit" in told:
        assert value_of(options, "--pids-limit") == "100"


def test_what_an_image_says_is_used_where_a_manifest_says_nothing() -> None:
    pod = a_pod(command=())
    assert "--entrypoint" not in options_of(pod) and "--memory" not in options_of(pod)
    assert "--workdir" not in options_of(pod)


@pytest.mark.parametrize(
    "image",
    [
        IMAGE,
        "busybox",
        "docker.io/library/busybox:1.36",
        "localhost:5000/a_b/c-d@sha256:" + "a" * 64,
        "registry.k8s.io/pause:3.9",
    ],
)
def test_an_image_is_a_reference(image: str) -> None:
    options_of(a_pod(image=image))


@pytest.mark.parametrize(
    "image",
    ["", "--privileged", "dir:/etc", "docker-archive:/tmp/x.tar", "oci:layout", "docker://x", "a b", "x:", "/etc", "x\ny"],
)
def test_what_is_no_reference_does_not_reach_podman(image: str) -> None:
    with pytest.raises(ConfigurationFault, match="image"):
        options_of(a_pod(image=image))


def test_a_part_of_a_volume_is_refused_as_its_links_would_be_followed() -> None:
    pod = a_pod()
    pod.spec.containers[0].volume_mounts.add(name="data", mount_path="/d", sub_path="x")
    with pytest.raises(ConfigurationFault, match="container \"main\": subPath 'x' of volume 'data' is not possible"):
        options_of(pod, data="/node/data")
    with pytest.raises(ConfigurationFault, match='mounts volume "data", which the pod does not have'):
        options_of(pod)


def test_what_only_a_process_can_promise_is_refused() -> None:
    pod = a_pod()
    pod.metadata.annotations["rayched.dev/stop-after-disconnect"] = "60s"
    with pytest.raises(ConfigurationFault, match="stop-after-disconnect: driver podman cannot promise it"):
        options_of(pod)


@pytest.mark.parametrize(
    ("policy", "user", "group", "expected"),
    [
        (ROOT, None, None, "65534:65534"),
        (replace(ROOT, allow_root=True), None, None, None),
        (replace(ROOT, allow_root=True), 0, None, "0:0"),
        (replace(ROOT, allowed_users=((1000, 2000),)), 1500, None, "1500:1500"),
        (replace(ROOT, allowed_users=((1000, 2000),), allowed_groups=((7, 7),)), 1500, 7, "1500:7"),
        (RunPolicy(1000, 1000), None, None, None),
        (RunPolicy(1000, 1000), 0, 0, "0:0"),
    ],
)
def test_a_container_is_whom_its_node_lets_it_be(
    policy: RunPolicy, user: int | None, group: int | None, expected: str | None
) -> None:
    """An agent that is not root gives away no more than it has: whatever a container is, on the host it is the agent's user."""
    assert value_of(options_of(with_user(user, group), policy), "--user") == expected


@pytest.mark.parametrize(
    ("policy", "user", "group", "message"),
    [
        (ROOT, 0, None, "cannot run as user 0, --allow-root-pods is not set"),
        (ROOT, 1500, None, "runAsUser 1500 is not allowed on this node; allowed are 65534"),
        (ROOT, None, 7, "runAsGroup 7 is not allowed on this node; allowed are 65534"),
        (replace(ROOT, allow_root=True), None, 7, "runAsGroup 7 needs a runAsUser"),
    ],
)
def test_a_container_is_nobody_else(policy: RunPolicy, user: int | None, group: int | None, message: str) -> None:
    with pytest.raises(ConfigurationFault, match=message):
        options_of(with_user(user, group), policy)


def with_user(user: int | None, group: int | None) -> Pod:
    pod = a_pod()
    context = pod.spec.containers[0].security_context
    if user is not None:
        context.run_as_user = user
    if group is not None:
        context.run_as_group = group
    return pod


def test_what_a_line_cannot_say_goes_by_the_command_line() -> None:
    text, options = environment_by_file({"A": "1 2", "B": "two\nlines", "C": "", "D": '"q"', "E": " led", "F": "x" * 70_000})
    assert text == "A=1 2\nC=\n"
    assert options[::2] == ["--env"] * 4
    assert options[1::2] == ["B=two\nlines", 'D="q"', "E= led", f"F={'x' * 70_000}"]


def test_scores_that_may_not_be_given_are_not_asked_for(tmp_path: Path) -> None:
    status, own = tmp_path / "status", tmp_path / "own"
    own.write_text("-17\n")
    for capabilities, lowest in (("0000000001000000", -1000), ("000001fffeffffff", -17)):
        status.write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
        assert lowest_score(status, own) == lowest
