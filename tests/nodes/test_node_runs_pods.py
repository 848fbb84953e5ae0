"""A real agent with real processes: what runs, what is reported, how it ends. Each pod names its node itself."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rayched.client import Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import ContainerStateWaiting, Pod
from tests.nodes.real_node import (
    a_pod,
    agent_thread,
    all_gone,
    condition,
    get,
    gone,
    in_phase,
    log_of,
    processes,
    ready,
    registered,
    settings,
    sh,
    status,
    text_of,
    uid_of,
    until,
)
from tests.server.serving import serving

NODE = "runs-pods"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def client(etcd: EtcdServer) -> Iterator[Client]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/runs-pods-{os.getpid()}"))
    with serving(options) as server, Client(server.address, timeout_seconds=10.0) as found:
        yield found


@pytest.fixture(scope="module")
def root(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of the node's agent, which runs."""
    directory = tmp_path_factory.mktemp("node")
    os.environ["AGENTS_OWN_CANARY"] = "sings"
    chosen = settings(directory, NODE)
    chosen = replace(chosen, policy=replace(chosen.policy, host_paths=(str(directory / "shared"),)))
    with agent_thread(chosen, client.endpoints[0]):
        yield directory


def name_of(what: str) -> str:
    return f"{what}-{next(_numbers)}"


def submitted(client: Client, pod: Pod) -> str:
    client.submit(pod)
    return pod.metadata.name


def run(client: Client, what: str, *command: str, policy: str = "Never", grace: int = 5) -> str:
    return submitted(client, a_pod(NODE, name_of(what), *command, policy=policy, grace=grace))


@pytest.mark.row("N1")
def test_a_node_is_registered_with_what_it_has(client: Client, root: Path) -> None:
    node = registered(client, NODE)
    assert {kind: quantity.string for kind, quantity in node.status.capacity.items()} == {
        "cpu": "64",
        "memory": f"{8 << 20}Ki",
        "ephemeral-storage": f"{8 << 20}Ki",
        "pods": "110",
    }
    assert node.status.allocatable == node.status.capacity
    assert {one.type: one.address for one in node.status.addresses} == {"InternalIP": "127.0.0.1", "Hostname": NODE}
    assert {one.type: one.status for one in node.status.conditions} == {
        "Ready": "True",
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
    }
    info = node.status.node_info
    assert info.boot_id and info.kernel_version and info.architecture and info.operating_system == "linux"
    assert info.container_runtime_version == "process://1.0" and info.kubelet_version == "rayched-1.0"


@pytest.mark.row("N22", "N23")
def test_a_container_that_ends_is_told_with_its_code(client: Client, root: Path) -> None:
    good, bad = run(client, "good", *sh("exit 0")), run(client, "bad", *sh("exit 3"))
    ended = in_phase(client, good, "Succeeded").container_statuses[0].state.terminated
    assert (ended.reason, ended.exit_code, ended.signal) == ("Completed", 0, 0)
    ended = in_phase(client, bad, "Failed").container_statuses[0].state.terminated
    assert (ended.reason, ended.exit_code, ended.signal) == ("Error", 3, 0)
    assert ended.started_at.seconds and ended.finished_at.seconds >= ended.started_at.seconds


@pytest.mark.row("N24")
def test_a_container_that_is_killed_is_told_with_the_signal(client: Client, root: Path) -> None:
    name = run(client, "killed", "sleep", "1000")
    in_phase(client, name, "Running")
    (pid,) = processes(client, name)
    os.kill(pid, signal.SIGKILL)
    ended = in_phase(client, name, "Failed").container_statuses[0].state.terminated
    assert (ended.exit_code, ended.signal) == (137, 9)


@pytest.mark.row("N25")
def test_a_program_that_is_not_there_is_a_start_error_that_names_it(client: Client, root: Path) -> None:
    once, again = run(client, "missing", "no-such-program"), run(client, "missing", "/no/such", policy="Always")
    ended = in_phase(client, once, "Failed").container_statuses[0].state.terminated
    assert (ended.reason, ended.exit_code) == ("StartError", 128)
    assert "'no-such-program': no such file in the working directory or on PATH" in ended.message

    def loops() -> bool:
        found = status(client, again).container_statuses
        return bool(found) and found[0].state.waiting.reason == "CrashLoopBackOff"

    until(loops, "CrashLoopBackOff")
    assert "'/no/such': No such file" in status(client, again).container_statuses[0].last_state.terminated.message


@pytest.mark.row("N26")
def test_a_container_without_a_command_waits(client: Client, root: Path) -> None:
    pod = a_pod(NODE, name_of("image"))
    pod.spec.containers.add(name="main", image="web:1", args=["--serve"])
    name = submitted(client, pod)

    waiting = waits(client, name)
    assert waiting.reason == "CreateContainerConfigError"
    assert waiting.message == 'container "main" has no command, and driver process has no image to take one from'
    assert status(client, name).phase == "Pending"


def waits(client: Client, name: str) -> ContainerStateWaiting:
    """What its first container waits for, once it says more than that it is being made."""
    until(lambda: any(one.state.waiting.message for one in status(client, name).container_statuses), "it says why it waits")
    return status(client, name).container_statuses[0].state.waiting


@pytest.mark.row("N30", "N31")
def test_restarts_are_counted_and_a_success_ends_a_pod_that_restarts_on_failure(client: Client, root: Path) -> None:
    name = run(client, "third", *sh('echo attempt $RAYCHED_ATTEMPT; [ "$RAYCHED_ATTEMPT" = 2 ]'), policy="OnFailure")
    found = in_phase(client, name, "Succeeded").container_statuses[0]
    assert found.restart_count == 2 and found.state.terminated.exit_code == 0 and found.last_state.terminated.exit_code == 1
    assert text_of(root, name, attempt=2) == ["attempt 2"]


@pytest.mark.row("N32", "N34")
def test_init_containers_come_first_and_a_sidecar_keeps_no_pod_alive(client: Client, root: Path) -> None:
    pod = a_pod(NODE, name_of("ordered"))
    pod.spec.volumes.add(name="shared").empty_dir.SetInParent()
    note = "echo %s >> $RAYCHED_VOLUME_SHARED/order"
    stop = f"trap '{note % 'stopped'}; exit 0' TERM; {note % 'side'}; while :; do sleep 0.05; done"
    for name, text, restart in (
        ("first", note % "first", ""),
        ("side", stop, "Always"),
        ("last", f"sleep 0.2; {note % 'last'}", ""),
    ):
        one = pod.spec.init_containers.add(name=name, command=sh(text))
        if restart:
            one.restart_policy = restart
    pod.spec.containers.add(name="main", command=sh(f"{note % 'main'}; sleep 0.2; {note % 'ended'}"))
    for one in (*pod.spec.init_containers, *pod.spec.containers):
        one.volume_mounts.add(name="shared", mount_path="/shared")
    name = submitted(client, pod)
    in_phase(client, name, "Succeeded")
    found = get(client, name)
    assert found is not None
    order = (root / "pods" / found.metadata.uid / "volumes" / "shared" / "order").read_text().split()
    assert order == ["first", "side", "last", "main", "ended", "stopped"]


@pytest.mark.row("N36", "N37")
def test_a_pod_is_ready_when_all_its_containers_are_and_conditions_have_times(client: Client, root: Path) -> None:
    pod = a_pod(NODE, name_of("two"))
    for name in ("a", "b"):
        pod.spec.containers.add(name=name, command=["sleep", "1000"])
    pod.spec.containers[1].readiness_probe.exec.command.extend(["test", "-e", "now"])
    pod.spec.containers[1].readiness_probe.period_seconds = 1
    name = submitted(client, pod)
    until(lambda: sum(one.state.HasField("running") for one in status(client, name).container_statuses) == 2, "both run")
    found = status(client, name)
    assert condition(found, "Initialized") == "True" and condition(found, "Ready") == "False"
    told = next(one.message for one in found.conditions if one.type == "ContainersReady")
    assert told == "containers with unready status: [b]"
    uid = uid_of(client, name)
    (root / "pods" / uid / "containers" / "b" / "0" / "work" / "now").touch()
    times = [one.last_transition_time.seconds for one in ready(client, name).conditions if one.type in ("Initialized", "Ready")]
    assert 0 < times[0] <= times[1]


@pytest.mark.row("N38")
def test_stdout_and_stderr_are_told_apart(client: Client, root: Path) -> None:
    name = run(client, "streams", *sh("echo one; sleep 0.1; echo two >&2; printf three"))
    in_phase(client, name, "Succeeded")
    assert sorted(log_of(root, name)) == [("stderr", "two"), ("stdout", "one"), ("stdout", "three")]


@pytest.mark.row("N39", "N40")
def test_the_environment_is_the_manifests_and_nothing_of_the_agents(client: Client, root: Path) -> None:
    pod = a_pod(NODE, name_of("env"), "sh", "-c", "env; echo arg $(GREETING) $$(GREETING) $(NOBODY) $1", "x", "$(WHO)")
    main = pod.spec.containers[0]
    for key, value in (("WHO", "world"), ("GREETING", "hello-$(WHO)"), ("ESCAPED", "$$(WHO)"), ("UNKNOWN", "$(NOBODY)")):
        main.env.add(name=key, value=value)
    main.env.add(name="POD_NAME").value_from.field_ref.field_path = "metadata.name"
    name = submitted(client, pod)
    in_phase(client, name, "Succeeded")
    lines = text_of(root, name)
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    assert (found["WHO"], found["GREETING"], found["ESCAPED"], found["UNKNOWN"], found["POD_NAME"]) == (
        "world",
        "hello-world",
        "$(WHO)",
        "$(NOBODY)",
        name,
    )
    assert "AGENTS_OWN_CANARY" not in found and os.environ["AGENTS_OWN_CANARY"] == "sings"
    allowed = {
        "WHO",
        "GREETING",
        "ESCAPED",
        "UNKNOWN",
        "POD_NAME",
        "PATH",
        "HOME",
        "TMPDIR",
        "HOSTNAME",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
    }
    assert {key for key in found if not key.startswith("RAYCHED_")} <= allowed
    assert found["RAYCHED_POD_NAME"] == name and found["RAYCHED_NODE_NAME"] == NODE


@pytest.mark.row("N41")
def test_the_working_directory_is_fresh_or_given_or_missing(client: Client, root: Path, tmp_path: Path) -> None:
    names = []
    for directory in ("", str(tmp_path), "/no/such/directory"):
        pod = a_pod(NODE, name_of("cwd"), *sh("pwd; ls -A"))
        pod.spec.containers[0].working_dir = directory
        names.append(submitted(client, pod))
    in_phase(client, names[0], "Succeeded")
    in_phase(client, names[1], "Succeeded")
    uid = get(client, names[0]).metadata.uid  # type: ignore[union-attr]
    assert text_of(root, names[0]) == [str(root / "pods" / uid / "containers" / "main" / "0" / "work")]
    assert text_of(root, names[1]) == [str(tmp_path)]
    ended = in_phase(client, names[2], "Failed").container_statuses[0].state.terminated
    assert (ended.reason, ended.message) == ("StartError", "working directory '/no/such/directory': No such file or directory")


@pytest.mark.row("N42")
def test_an_empty_dir_is_shared_and_goes_with_the_pod(client: Client, root: Path) -> None:
    pod = a_pod(NODE, name_of("share"))
    pod.spec.volumes.add(name="my-data").empty_dir.SetInParent()
    for name, text in (
        ("writer", "echo hello > $RAYCHED_VOLUME_MY_DATA/x"),
        ("reader", "until cat $RAYCHED_VOLUME_MY_DATA/x; do :; done"),
    ):
        pod.spec.containers.add(name=name, command=sh(text)).volume_mounts.add(name="my-data", mount_path="/data")
    name = submitted(client, pod)
    in_phase(client, name, "Succeeded")
    assert ("stdout", "hello") in log_of(root, name, "reader")
    uid = uid_of(client, name)
    assert (root / "pods" / uid / "volumes" / "my-data" / "x").exists()
    client.delete("pod", name)
    gone(client, name)
    until(lambda: not (root / "pods" / uid).exists(), "its directory is gone")
    assert not list(root.glob(f"logs/*{uid}"))


@pytest.mark.row("N43")
def test_a_host_path_has_to_be_on_the_list(client: Client, root: Path) -> None:
    (root / "shared").mkdir(exist_ok=True)
    names = []
    for path in (str(root / "shared"), "/etc", f"{root}/shared/../../etc"):
        pod = a_pod(NODE, name_of("host"), *sh("echo $RAYCHED_VOLUME_H"))
        pod.spec.volumes.add(name="h").host_path.path = path
        pod.spec.containers[0].volume_mounts.add(name="h", mount_path="/h")
        names.append(submitted(client, pod))
    in_phase(client, names[0], "Succeeded")
    assert text_of(root, names[0]) == [str(root / "shared")]
    for name, path in zip(names[1:], ("/etc", f"{root}/shared/../../etc"), strict=True):
        waiting = waits(client, name)
        assert waiting.reason == "CreateContainerConfigError"
        assert waiting.message == f"hostPath {path!r} is not allowed on this node; allowed are {root / 'shared'}"


@pytest.mark.row("N46")
def test_a_deleted_pod_gets_the_signal_then_is_killed_and_its_object_goes(client: Client, root: Path) -> None:
    polite = run(client, "polite", *sh("trap 'exit 0' TERM; while :; do sleep 0.05; done"), grace=300)
    stubborn = run(client, "stubborn", *sh("trap '' TERM; while :; do sleep 0.05; done"), grace=2)
    in_phase(client, polite, "Running")
    in_phase(client, stubborn, "Running")
    pids = processes(client, polite) + processes(client, stubborn)
    began = time.monotonic()
    client.delete("pod", polite)
    client.delete("pod", stubborn)
    gone(client, polite)
    assert time.monotonic() - began < 250, "the signal was enough"
    assert get(client, stubborn) is not None or time.monotonic() - began >= 2
    gone(client, stubborn)
    assert time.monotonic() - began >= 2 and all_gone(pids)


@pytest.mark.row("N47")
def test_a_second_deletion_can_only_shorten_the_grace(client: Client, root: Path) -> None:
    name = run(client, "patient", *sh("trap '' TERM; while :; do sleep 0.05; done"), grace=600)
    in_phase(client, name, "Running")
    client.delete("pod", name)
    time.sleep(0.5)
    assert processes(client, name)
    client.delete("pod", name, grace_period_seconds=1)
    gone(client, name)


@pytest.mark.row("N48")
def test_the_hook_before_the_stop_runs_first(client: Client, root: Path) -> None:
    pod = a_pod(NODE, name_of("hook"), *sh("trap 'cat hooked; exit 0' TERM; while :; do sleep 0.05; done"), grace=300)
    pod.spec.containers[0].lifecycle.pre_stop.exec.command.extend(sh("echo before > hooked"))
    cut = a_pod(NODE, name_of("hook"), "sleep", "1000", grace=1)
    cut.spec.containers[0].lifecycle.pre_stop.exec.command.extend(["sleep", "1000"])
    for one in (pod, cut):
        submitted(client, one)
    for one in (pod, cut):
        in_phase(client, one.metadata.name, "Running")
    (log,) = root.glob(f"logs/*_{pod.metadata.name}_*/main/0.log")
    # It stays readable after the directory is gone.
    with log.open() as file:
        client.delete("pod", pod.metadata.name)
        gone(client, pod.metadata.name)
        assert file.read().endswith("stdout F before\n")
    began = time.monotonic()
    client.delete("pod", cut.metadata.name)
    gone(client, cut.metadata.name)
    assert time.monotonic() - began < 30


@pytest.mark.row("N49")
@pytest.mark.parametrize("group", ["false", "true"])
def test_the_signal_goes_to_the_main_process_or_by_annotation_to_its_group(client: Client, root: Path, group: str) -> None:
    child = "trap 'echo child >&3; exit' TERM; echo up >&3; while :; do sleep 0.05; done"
    main = f"exec 3>&1; sh -c \"{child}\" & trap 'sleep 0.5; exit 0' TERM; while :; do sleep 0.05; done"
    pod = a_pod(NODE, name_of("group"), *sh(main), grace=30)
    pod.metadata.annotations["rayched.dev/stop-group"] = group
    name = submitted(client, pod)
    in_phase(client, name, "Running")
    until(lambda: text_of(root, name) == ["up"], "the child is up")
    (log,) = root.glob(f"logs/*_{name}_*/main/0.log")
    with log.open() as file:
        client.delete("pod", name)
        gone(client, name)
        assert ("child" in file.read()) == (group == "true")


def test_what_main_leaves_behind_dies_with_it_also_a_daemon(client: Client, root: Path) -> None:
    script = "sleep 1001 & (setsid sh -c 'sleep 1002 & sleep 1003' &) ; sleep 0.3; exit 0"
    name = run(client, "daemons", *sh(script))
    until(lambda: len(processes(client, name)) >= 5, "its children run")
    pids = processes(client, name)
    in_phase(client, name, "Succeeded")
    assert all_gone(pids) and not processes(client, name)


@pytest.mark.row("N51")
def test_a_forced_deletion_takes_the_object_at_once_and_the_processes_soon(client: Client, root: Path) -> None:
    name = run(client, "forced", *sh("trap '' TERM; while :; do sleep 0.05; done"), grace=1)
    in_phase(client, name, "Running")
    pids = processes(client, name)
    client.delete("pod", name, grace_period_seconds=0)
    assert get(client, name) is None
    until(lambda: all_gone(pids), "its processes are gone")


@pytest.mark.row("N52")
def test_the_same_name_may_come_again_while_the_old_pod_ends(client: Client, root: Path) -> None:
    name = run(client, "again", *sh("trap 'sleep 1; exit 0' TERM; while :; do sleep 0.05; done"), grace=300)
    in_phase(client, name, "Running")
    old = processes(client, name)
    client.delete("pod", name, grace_period_seconds=0)
    client.submit(a_pod(NODE, name, "sleep", "1000"))
    in_phase(client, name, "Running")
    (new,) = processes(client, name)
    assert new not in old
    until(lambda: all_gone(old), "the old one has ended")
    assert processes(client, name) == [new] and status(client, name).phase == "Running"


@pytest.mark.row("N55")
def test_a_failed_liveness_probe_restarts_the_container(client: Client, root: Path) -> None:
    pod = a_pod(NODE, name_of("alive"), *sh("touch alive; sleep 0.5; rm alive; sleep 1000"), policy="Always", grace=1)
    probe = pod.spec.containers[0].liveness_probe
    probe.exec.command.extend(["test", "-e", "alive"])
    probe.period_seconds = probe.failure_threshold = 1
    name = submitted(client, pod)
    until(lambda: any(one.restart_count for one in status(client, name).container_statuses), "it is restarted")
    assert status(client, name).container_statuses[0].last_state.terminated.exit_code in (137, 143)


@pytest.mark.row("N56")
def test_a_failed_readiness_probe_takes_ready_away_and_restarts_nothing(client: Client, root: Path) -> None:
    pod = a_pod(NODE, name_of("ready"), *sh("touch ready; sleep 1000"), policy="Always")
    probe = pod.spec.containers[0].readiness_probe
    probe.exec.command.extend(["test", "-e", "ready"])
    probe.period_seconds = probe.failure_threshold = 1
    name = submitted(client, pod)
    ready(client, name)
    uid = uid_of(client, name)
    (root / "pods" / uid / "containers" / "main" / "0" / "work" / "ready").unlink()
    until(lambda: condition(status(client, name), "Ready") == "False", "it is not ready any more")
    assert status(client, name).container_statuses[0].restart_count == 0


@pytest.mark.row("N57", "N58")
def test_http_probes_take_2xx_and_3xx_and_a_slow_probe_fails(client: Client, root: Path) -> None:
    server = (
        "import http.server,sys\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(int(self.path[1:])); self.end_headers()\n"
        "s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)\n"
        "open('port','w').write(str(s.server_port)); s.serve_forever()\n"
    )
    pod = a_pod(NODE, name_of("http"), "python3", "-c", server)
    name = submitted(client, pod)
    in_phase(client, name, "Running")
    uid = uid_of(client, name)
    path = root / "pods" / uid / "containers" / "main" / "0" / "work" / "port"
    port = int(until(lambda: path.exists() and path.read_text(), "it listens"))
    found = {}
    for code in (200, 302, 404, 500):
        asked = a_pod(NODE, name_of(f"asks-{code}"), "sleep", "1000")
        probe = asked.spec.containers[0].readiness_probe
        probe.http_get.path, probe.http_get.port.int_value, probe.period_seconds = f"/{code}", port, 1
        found[code] = submitted(client, asked)
    slow = a_pod(NODE, name_of("slow"), "sleep", "1000")
    slow.spec.containers[0].readiness_probe.exec.command.extend(["sleep", "5"])
    slow.spec.containers[0].readiness_probe.period_seconds = 1
    found[0] = submitted(client, slow)
    ready(client, found[200])
    ready(client, found[302])
    time.sleep(2.5)
    assert {code: condition(status(client, one), "Ready") for code, one in found.items()} == {
        200: "True",
        302: "True",
        404: "False",
        500: "False",
        0: "False",
    }


def test_a_tcp_probe_asks_whether_somebody_listens(client: Client, root: Path) -> None:
    port = int(client.endpoints[0].rpartition(":")[2])
    listens, nobody = (a_pod(NODE, name_of("tcp"), "sleep", "1000") for _ in range(2))
    for pod, number in ((listens, port), (nobody, 1)):
        probe = pod.spec.containers[0].readiness_probe
        probe.tcp_socket.port.int_value, probe.period_seconds = number, 1
        submitted(client, pod)
    ready(client, listens.metadata.name)
    until(lambda: condition(status(client, nobody.metadata.name), "Ready") == "False", "nobody listens there")


@pytest.mark.row("N18")
def test_a_pod_that_is_too_large_is_refused_and_one_waits_for_room_that_an_ending_pod_holds(client: Client, root: Path) -> None:
    first = a_pod(NODE, name_of("large"), *sh("trap 'sleep 1; exit' TERM; while :; do sleep 0.05; done"), grace=300)
    second, third = (a_pod(NODE, name_of("large"), "sleep", "1000") for _ in range(2))
    for pod in (first, second, third):
        pod.spec.containers[0].resources.requests["cpu"].string = "40"
    submitted(client, first)
    in_phase(client, first.metadata.name, "Running")
    submitted(client, third)
    found = in_phase(client, third.metadata.name, "Failed")
    assert found.reason == "OutOfcpu"
    assert (
        found.message == "Pod was rejected: Node didn't have enough resource: cpu, requested: 40000, used: 40000, capacity: 64000"
    )
    client.delete("pod", first.metadata.name)
    submitted(client, second)
    in_phase(client, second.metadata.name, "Running")
    assert get(client, first.metadata.name) is None or not processes(client, first.metadata.name)
