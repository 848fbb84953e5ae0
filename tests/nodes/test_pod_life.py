"""The life of a pod with a given clock and given ends of its containers: what is started when, what its status says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rayched.nodes.agent.actions import (
    Action,
    LifecycleHook,
    PodEvent,
    PreparePod,
    RunHook,
    RunProbe,
    StartContainer,
    StopContainer,
)
from rayched.nodes.agent.container_life import ContainerExit
from rayched.nodes.agent.phases import ContainerRole, ContainerView, phase_of
from rayched.nodes.agent.pod_life import PodEnding, PodLife
from rayched.nodes.agent.pod_status import status_of
from rayched.nodes.agent.probing import ProbeKind, ProbeState, probes_of
from rayched.nodes.agent.restarts import failures_after, restart_delay
from rayched.v1.core_pb2 import Container, Pod, PodStatus, Probe

START = 1_000_000.0


class Stage:
    """A pod whose containers do what a test says."""

    def __init__(self, pod: Pod, **options: float) -> None:
        self.now = START
        self.life = PodLife(pod, self.now, **options)
        self.done: list[Action] = []
        self.go()
        if any(isinstance(action, PreparePod) for action in self.done):
            self.life.prepared(self.now)
            self.go()

    def go(self, seconds: float = 0.0) -> list[Action]:
        """The time passes; what is to be done then. What is started runs at once."""
        self.now += seconds
        found: list[Action] = []
        while actions := self.life.advance(self.now):
            found += actions
            for action in actions:
                if isinstance(action, StartContainer):
                    self.life.started(action.container, action.attempt, self.now)
        self.done += found
        return found

    def ends(self, name: str, code: int = 0, seconds: float = 0.0) -> list[Action]:
        self.now += seconds
        one = self.life.container(name)
        reason = "Error" if code else "Completed"
        self.life.ended(name, one.attempt, ContainerExit(code, 0, reason, one.started_at, self.now))
        return self.go()

    def status(self) -> PodStatus:
        return status_of(self.life, "10.0.0.1", self.now)

    def starts(self) -> list[str]:
        return [f"{action.container}/{action.attempt}" for action in self.done if isinstance(action, StartContainer)]


def a_pod(*names: str, policy: str = "Always", init: Sequence[Container] = ()) -> Pod:
    pod = Pod()
    pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = "web", "default", "u-1"
    pod.spec.restart_policy = policy
    for name in names or ("main",):
        pod.spec.containers.add(name=name, command=["x"])
    pod.spec.init_containers.extend(init)
    return pod


def sidecar(name: str) -> Container:
    return Container(name=name, restart_policy="Always")


@pytest.mark.row("N27", "N29")
def test_waits_double_up_to_five_minutes_or_the_cap() -> None:
    assert [restart_delay(failures) for failures in range(1, 9)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert [restart_delay(failures, 60.0) for failures in range(1, 6)] == [0, 10, 20, 40, 60]
    assert [restart_delay(failures, 3.0) for failures in range(1, 5)] == [0, 3, 3, 3], "the cap is the first wait's too"


@pytest.mark.row("N28")
def test_ten_minutes_of_running_begin_anew() -> None:
    assert failures_after(5, 599.9) == 6 and failures_after(5, 600.0) == 1


@pytest.mark.row("N27")
def test_a_container_is_restarted_at_these_times_and_its_status_says_how_long_it_waits() -> None:
    stage = Stage(a_pod())
    for failures, delay in enumerate((0, 10, 20, 40, 80, 160, 300, 300), start=1):
        stage.ends("main", 1, seconds=1.0)
        if delay:
            waiting = stage.status().container_statuses[0].state.waiting
            assert waiting.reason == "CrashLoopBackOff" and stage.status().phase == "Running"
            told = {10: "10s", 20: "20s", 40: "40s", 80: "1m20s", 160: "2m40s", 300: "5m0s"}[delay]
            assert waiting.message == f"back-off {told} restarting failed container=main pod=web_default(u-1)"
            assert stage.life.wakes_at(stage.now) == stage.now + delay
            assert not any(isinstance(action, StartContainer) for action in stage.go(delay - 0.1))
            stage.go(0.1)
        assert stage.starts()[-1] == f"main/{failures}"
        assert stage.status().container_statuses[0].restart_count == failures
    assert stage.status().container_statuses[0].last_state.terminated.exit_code == 1


@pytest.mark.row("N33")
def test_an_init_container_that_fails_fails_a_pod_that_never_restarts() -> None:
    stage = Stage(a_pod(policy="Never", init=[Container(name="first")]))
    assert stage.starts() == ["first/0"]
    stage.ends("first", 2)
    assert stage.life.has_ended and stage.status().phase == "Failed" and stage.starts() == ["first/0"]
    again = Stage(a_pod(policy="OnFailure", init=[Container(name="first")]))
    again.ends("first", 2)
    assert again.starts() == ["first/0", "first/1"] and again.status().phase == "Pending"


def test_init_containers_run_in_order_and_sidecars_stop_last_in_reverse() -> None:
    init = [Container(name="a"), sidecar("s1"), Container(name="b"), sidecar("s2")]
    stage = Stage(a_pod(policy="Never", init=init))
    assert stage.starts() == ["a/0"]
    stage.ends("a")
    assert stage.starts() == ["a/0", "s1/0", "b/0"]
    assert [one.status for one in stage.status().conditions if one.type == "Initialized"] == ["False"]
    stage.ends("b")
    assert stage.starts()[3:] == ["s2/0", "main/0"] and stage.status().phase == "Running"
    stage.ends("s1", 1)
    assert stage.starts()[-1] == "s1/1", "a sidecar is always restarted"
    actions = stage.ends("main")
    assert [one.container for one in actions if isinstance(one, StopContainer)] == ["s2"]
    assert stage.status().phase == "Running", "a sidecar lives"
    actions = stage.ends("s2", 143)
    assert [one.container for one in actions if isinstance(one, StopContainer)] == ["s1"]
    stage.ends("s1", 143)
    assert stage.life.has_ended and stage.status().phase == "Succeeded"


RUNS, ENDED, FAILED, NEW = (
    ContainerView(ContainerRole.REGULAR, running=True),
    ContainerView(ContainerRole.REGULAR, exit_code=0),
    ContainerView(ContainerRole.REGULAR, exit_code=1),
    ContainerView(ContainerRole.REGULAR),
)
LOST = ContainerView(ContainerRole.REGULAR, unknown=True)
INIT_RUNS, INIT_DONE, INIT_FAILED, INIT_NEW = (
    ContainerView(ContainerRole.INIT, running=True),
    ContainerView(ContainerRole.INIT, exit_code=0),
    ContainerView(ContainerRole.INIT, exit_code=1),
    ContainerView(ContainerRole.INIT),
)
SIDE_UP, SIDE_NEW, SIDE_STARTS = (
    ContainerView(ContainerRole.SIDECAR, running=True, passed=True),
    ContainerView(ContainerRole.SIDECAR),
    ContainerView(ContainerRole.SIDECAR, running=True),
)


@pytest.mark.row("N35")
@pytest.mark.parametrize(
    ("views", "always", "on_failure", "never", "ending"),
    [
        ([NEW], "Pending", "Pending", "Pending", "Pending"),
        ([RUNS], "Running", "Running", "Running", "Running"),
        ([ENDED], "Running", "Succeeded", "Succeeded", "Succeeded"),
        ([FAILED], "Running", "Running", "Failed", "Failed"),
        ([RUNS, RUNS], "Running", "Running", "Running", "Running"),
        ([RUNS, ENDED], "Running", "Running", "Running", "Running"),
        ([RUNS, FAILED], "Running", "Running", "Running", "Running"),
        ([RUNS, NEW], "Pending", "Pending", "Pending", "Pending"),
        ([ENDED, NEW], "Pending", "Pending", "Pending", "Pending"),
        ([ENDED, ENDED], "Running", "Succeeded", "Succeeded", "Succeeded"),
        ([ENDED, FAILED], "Running", "Running", "Failed", "Failed"),
        ([LOST], "Pending", "Pending", "Pending", "Pending"),
        ([RUNS, LOST], "Pending", "Pending", "Pending", "Pending"),
        ([INIT_NEW, NEW], "Pending", "Pending", "Pending", "Pending"),
        ([INIT_RUNS, NEW], "Pending", "Pending", "Pending", "Pending"),
        ([INIT_DONE, NEW], "Pending", "Pending", "Pending", "Pending"),
        ([INIT_FAILED, NEW], "Pending", "Pending", "Failed", "Failed"),
        ([INIT_DONE, INIT_FAILED, NEW], "Pending", "Pending", "Failed", "Failed"),
        ([INIT_DONE, RUNS], "Running", "Running", "Running", "Running"),
        ([INIT_DONE, ENDED], "Running", "Succeeded", "Succeeded", "Succeeded"),
        ([SIDE_NEW, NEW], "Pending", "Pending", "Pending", "Pending"),
        ([SIDE_STARTS, NEW], "Pending", "Pending", "Pending", "Pending"),
        ([SIDE_UP, RUNS], "Running", "Running", "Running", "Running"),
        ([SIDE_UP, FAILED], "Running", "Running", "Failed", "Failed"),
        ([SIDE_NEW, RUNS], "Running", "Running", "Running", "Running"),
    ],
)
def test_the_phase_follows_from_the_containers(
    views: list[ContainerView], always: str, on_failure: str, never: str, ending: str
) -> None:
    found = [phase_of(views, policy, ending=False) for policy in ("Always", "OnFailure", "Never")]
    assert found == [always, on_failure, never] and phase_of(views, "Never", ending=True) == ending


def probe_of(success: int = 0, failure: int = 0) -> ProbeState:
    probe = Probe(success_threshold=success, failure_threshold=failure)
    container = Container(name="main", readiness_probe=probe, liveness_probe=probe)
    return probes_of(container, START)[ProbeKind.READINESS]


@pytest.mark.row("N54")
@pytest.mark.parametrize(
    ("success", "failure", "results", "passed"),
    [
        (0, 0, "+", True),
        (0, 0, "+--", True),
        (0, 0, "+---", False),
        (0, 0, "+--+--", True),
        (2, 0, "+", False),
        (2, 0, "+-+", False),
        (2, 0, "++", True),
        (0, 1, "+-", False),
        (0, 1, "+-+", True),
        (0, 2, "+-?-", False),
        (0, 2, "+-??+", True),
        (0, 0, "???", False),
    ],
)
def test_so_many_results_in_a_row_turn_a_probe(success: int, failure: int, results: str, passed: bool) -> None:
    probe = probe_of(success, failure)
    for result in results:
        probe.result({"+": True, "-": False, "?": None}[result])
    assert probe.passed is passed


@pytest.mark.row("N54")
def test_probes_have_kubernetes_defaults_and_the_startup_probe_holds_back_the_others() -> None:
    probe = probe_of()
    assert (probe.period, probe.timeout, probe.next_at) == (10.0, 1.0, START)
    pod = a_pod()
    main = pod.spec.containers[0]
    main.startup_probe.initial_delay_seconds = 5
    main.liveness_probe.period_seconds = main.readiness_probe.period_seconds = 3
    stage = Stage(pod)

    def probed(actions: Sequence[Action]) -> list[ProbeKind]:
        return [action.kind for action in actions if isinstance(action, RunProbe)]

    assert probed(stage.done) == [] and stage.life.wakes_at(stage.now) == START + 5
    assert probed(stage.go(5)) == [ProbeKind.STARTUP] and not stage.status().container_statuses[0].started
    stage.life.probed("main", 0, ProbeKind.STARTUP, True, "", stage.now)
    assert probed(stage.go()) == [ProbeKind.LIVENESS, ProbeKind.READINESS]
    status = stage.status().container_statuses[0]
    assert status.started and not status.ready
    stage.life.probed("main", 0, ProbeKind.READINESS, True, "", stage.now)
    assert stage.status().container_statuses[0].ready


@pytest.mark.row("N59")
def test_a_failed_liveness_probe_has_its_own_grace() -> None:
    pod = a_pod()
    pod.spec.termination_grace_period_seconds = 60
    probe = pod.spec.containers[0].liveness_probe
    probe.failure_threshold, probe.termination_grace_period_seconds = 1, 7
    stage = Stage(pod)
    stage.life.probed("main", 0, ProbeKind.LIVENESS, False, "no", stage.now)
    actions = stage.go()
    assert StopContainer("main", 0, 7.0) in actions
    assert PodEvent("Warning", "Unhealthy", "Liveness probe failed: no") in actions
    assert PodEvent("Normal", "Killing", "Container main failed liveness probe, will be restarted") in actions
    stage.ends("main", 137)
    assert stage.starts() == ["main/0", "main/1"]


def test_the_hook_before_the_stop_runs_within_the_grace_and_is_cut_by_it() -> None:
    pod = a_pod()
    pod.spec.containers[0].lifecycle.pre_stop.exec.command.append("x")
    stage = Stage(pod)
    stage.life.end(PodEnding(stage.now + 10))
    assert [one for one in stage.go() if not isinstance(one, PodEvent)] == [RunHook("main", 0, LifecycleHook.PRE_STOP, 10.0)]
    assert stage.go(9) == [] and stage.life.wakes_at(stage.now) == stage.now + 1
    assert stage.go(1) == [StopContainer("main", 0, 2.0)], "it has two seconds all the same"
    quick = Stage(pod)
    quick.life.end(PodEnding(quick.now + 10))
    quick.go()
    quick.life.hook_done("main", 0, LifecycleHook.PRE_STOP, "", quick.now + 3)
    assert quick.go(3) == [StopContainer("main", 0, 7.0)]


def test_grace_only_shrinks_and_an_eviction_at_once_skips_the_hook() -> None:
    pod = a_pod()
    pod.spec.containers[0].lifecycle.pre_stop.exec.command.append("x")
    stage = Stage(pod)
    stage.life.end(PodEnding(stage.now, "Evicted", "low", disruption=True))
    assert [one for one in stage.go() if isinstance(one, StopContainer | RunHook)] == [StopContainer("main", 0, 0.0)]
    plain = Stage(a_pod())
    plain.life.end(PodEnding(plain.now + 30))
    assert StopContainer("main", 0, 30.0) in plain.go()
    plain.life.end(PodEnding(plain.now + 60))
    assert plain.go(1) == []
    plain.life.end(PodEnding(plain.now + 5))
    assert plain.go() == [StopContainer("main", 0, 5.0)]


def test_an_evicted_pod_fails_with_its_reason_once_nothing_of_it_lives() -> None:
    stage = Stage(a_pod("a", "b"))
    stage.life.end(PodEnding(stage.now, "Evicted", "The node was low.", disruption=True))
    stage.go()
    stage.ends("a", 137)
    assert stage.status().phase == "Running" and not stage.status().reason
    stage.ends("b", 137)
    status = stage.status()
    assert (status.phase, status.reason, status.message) == ("Failed", "Evicted", "The node was low.")
    (target,) = (one for one in status.conditions if one.type == "DisruptionTarget")
    assert (target.status, target.reason, target.message) == ("True", "TerminationByKubelet", "The node was low.")


def test_a_deadline_ends_a_pod_at_its_second() -> None:
    pod = a_pod()
    pod.spec.active_deadline_seconds = 60
    stage = Stage(pod)
    assert stage.life.wakes_at(stage.now) == START + 60
    assert stage.go(59.9) == []
    assert StopContainer("main", 0, 30.0) in stage.go(0.1)
    stage.ends("main", 143)
    assert (stage.status().phase, stage.status().reason) == ("Failed", "DeadlineExceeded")
    assert stage.status().message == "Pod was active on the node longer than the specified deadline"


def test_a_container_that_cannot_be_configured_waits_and_costs_no_attempt() -> None:
    stage = Stage(a_pod())
    stage.ends("main", 1)
    one = stage.life.container("main")
    one.begins()
    stage.life.not_configured("main", "CreateContainerConfigError", "no command", stage.now)
    waiting = stage.status().container_statuses[0].state.waiting
    assert (waiting.reason, waiting.message) == ("CreateContainerConfigError", "no command")
    assert one.attempts == 2


def test_a_status_has_no_endless_messages() -> None:
    stage = Stage(a_pod(policy="Never"))
    stage.life.ended("main", 0, ContainerExit(128, 0, "StartError", stage.now, stage.now, "x" * 5000))
    stage.go()
    found = status_of(stage.life, "10.0.0.1", stage.now)
    assert [one.state.terminated.message for one in found.container_statuses] == ["x" * 1024]
