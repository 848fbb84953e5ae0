"""Reading KubeSchedulerConfiguration files: what is said, what is defaulted, what is refused with file, line and field."""

from __future__ import annotations

import pytest

from rayched.configuration.configuration import Configuration, LeaderElectionConfiguration
from rayched.configuration.configuration_file import Loaded
from rayched.configuration.yaml_fields import duration_seconds
from rayched.framework import names
from rayched.framework.plugin_args import (
    CPU_AND_MEMORY,
    DefaultPreemptionArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceSpec,
    ScoringStrategyType,
    ShapePoint,
)
from tests.configuration.configuration_files import HEAD, faults, faults_of, loaded, read


def args_of(read_file: Loaded, plugin: str, profile: int = 0) -> object:
    (args,) = [entry.args for entry in read_file.configuration.profiles[profile].plugin_config if entry.name == plugin]
    return args


def test_a_file_that_says_nothing_gives_the_defaults() -> None:
    found = read("")
    assert found.configuration == Configuration()
    assert list(found.profiles) == ["default-scheduler"]
    assert found.warnings == ()
    assert found.configuration.percentage_of_nodes_to_score == 100


def test_every_scalar_is_read() -> None:
    configuration = read(
        """\
        parallelism: 4
        percentageOfNodesToScore: 0
        podInitialBackoffSeconds: 2
        podMaxBackoffSeconds: 60
        leaderElection:
          leaderElect: true
          leaseDuration: 3s
          renewDeadline: 1500ms
          retryPeriod: 0.5s
          resourceLock: leases
        """
    ).configuration
    assert (configuration.parallelism, configuration.percentage_of_nodes_to_score) == (4, 0)
    assert (configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds) == (2, 60)
    assert configuration.leader_election == LeaderElectionConfiguration(True, 3.0, 1.5, 0.5)


@pytest.mark.row("K8.5", "K8.1", "K8.2")
@pytest.mark.parametrize("version", ["v1", "v1beta3"])
def test_bin_packing_by_ratio_is_read_in_both_versions(version: str) -> None:
    found = loaded(
        f"""\
        apiVersion: kubescheduler.config.k8s.io/{version}
        kind: KubeSchedulerConfiguration
        profiles:
        - pluginConfig:
          - name: NodeResourcesFit
            args:
              apiVersion: kubescheduler.config.k8s.io/{version}
              kind: NodeResourcesFitArgs
              ignoredResources: [example.com/foo]
              ignoredResourceGroups: [example.org]
              scoringStrategy:
                type: RequestedToCapacityRatio
                resources:
                - {{name: vendor.example/npu, weight: 3}}
                - {{name: cpu}}
                - {{name: memory, weight: 0}}
                requestedToCapacityRatio:
                  shape:
                  - {{utilization: 0, score: 0}}
                  - {{utilization: 100, score: 10}}
        """
    )
    args = args_of(found, names.NODE_RESOURCES_FIT)
    assert isinstance(args, NodeResourcesFitArgs)
    assert args.ignored_resources == ("example.com/foo",) and args.ignored_resource_groups == ("example.org",)
    assert args.scoring_strategy.type is ScoringStrategyType.REQUESTED_TO_CAPACITY_RATIO
    assert args.scoring_strategy.resources == (ResourceSpec("vendor.example/npu", 3), ResourceSpec("cpu"), ResourceSpec("memory"))
    assert args.scoring_strategy.shape == (ShapePoint(0, 0), ShapePoint(100, 10))


@pytest.mark.row("K2.6", "K1.5")
def test_two_profiles_one_of_them_with_added_affinity() -> None:
    found = loaded(
        """\
        apiVersion: kubescheduler.config.k8s.io/v1beta3
        kind: KubeSchedulerConfiguration
        profiles:
          - schedulerName: default-scheduler
          - schedulerName: foo-scheduler
            percentageOfNodesToScore: 30
            pluginConfig:
              - name: NodeAffinity
                args:
                  addedAffinity:
                    requiredDuringSchedulingIgnoredDuringExecution:
                      nodeSelectorTerms:
                      - matchExpressions:
                        - key: scheduler-profile
                          operator: In
                          values:
                          - foo
        """
    )
    assert list(found.profiles) == ["default-scheduler", "foo-scheduler"]
    assert found.profiles["foo-scheduler"].percentage_of_nodes_to_score == 30
    args = args_of(found, names.NODE_AFFINITY, profile=1)
    assert isinstance(args, NodeAffinityArgs) and args.added_affinity is not None
    (term,) = args.added_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
    (expression,) = term.match_expressions
    assert (expression.key, expression.operator, list(expression.values)) == ("scheduler-profile", "In", ["foo"])


def test_arguments_of_plugins_are_read_whether_the_plugin_is_there_or_not() -> None:
    found = read(
        """\
        profiles:
        - pluginConfig:
          - name: DefaultPreemption
            args: {minCandidateNodesPercentage: 20, minCandidateNodesAbsolute: 0}
          - name: InterPodAffinity
            args: {hardPodAffinityWeight: 0, ignorePreferredTermsOfExistingPods: true, fixUpstreamBugs: true}
          - name: PodTopologySpread
            args:
              defaultingType: List
              defaultConstraints:
              - {maxSkew: 2, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway, minDomains: 3}
          - name: NodeResourcesBalancedAllocation
          - name: NodeResourcesFit
            args: {}
        """
    )
    assert args_of(found, names.DEFAULT_PREEMPTION) == DefaultPreemptionArgs(20, 0)
    assert args_of(found, names.INTER_POD_AFFINITY) == InterPodAffinityArgs(0, True, True)
    assert args_of(found, names.NODE_RESOURCES_BALANCED_ALLOCATION) == NodeResourcesBalancedAllocationArgs(CPU_AND_MEMORY)
    assert args_of(found, names.NODE_RESOURCES_FIT) == NodeResourcesFitArgs()
    spread = args_of(found, names.POD_TOPOLOGY_SPREAD)
    (constraint,) = spread.default_constraints  # type: ignore[attr-defined]
    assert (constraint.max_skew, constraint.topology_key, constraint.min_domains) == (2, "topology.kubernetes.io/zone", 3)


@pytest.mark.row("K1.4")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kind: Policy\napiVersion: v1\n", "sched.yaml:1: kind: scheduling policies (predicates and priorities) are gone"),
        (
            "kind: KubeSchedulerConfiguration\napiVersion: kubescheduler.config.k8s.io/v1alpha1\nalgorithmSource: {}\n",
            'sched.yaml:2: apiVersion: "kubescheduler.config.k8s.io/v1alpha1" is no longer read',
        ),
        (
            "kind: KubeSchedulerConfiguration\napiVersion: kubescheduler.config.k8s.io/v2\n",
            'sched.yaml:2: apiVersion: must be "kubescheduler.config.k8s.io/v1" or',
        ),
        ("kind: KubeSchedulerConfiguration\n", "sched.yaml:1: apiVersion: is required"),
        ("apiVersion: kubescheduler.config.k8s.io/v1\n", "sched.yaml:1: kind: is required"),
        ("kind: Pod\napiVersion: v1\n", 'sched.yaml:1: kind: must be "KubeSchedulerConfiguration", found "Pod"'),
        ("", "sched.yaml:1: is empty"),
        ("# nothing\n---\n", "sched.yaml:1: is empty"),
        ("- a\n", "sched.yaml:1: must be a mapping, found a list"),
        ("a: 1\n---\nb: 2\n", "sched.yaml:1: holds 2 documents"),
        ("a: [1\nb: 2\n", "sched.yaml:2: is not valid YAML"),
        ("a: b: c\n", "sched.yaml:1: is not valid YAML"),
        ("a: \x00\n", "sched.yaml:1: is not valid YAML"),
    ],
)
def test_what_is_no_configuration_is_refused_with_a_word_on_what_to_write(text: str, fault: str) -> None:
    (found,) = faults(text)
    assert found.startswith(fault)


@pytest.mark.row("K6.9")
def test_all_violations_come_at_once_in_the_order_of_their_lines() -> None:
    found = faults_of(
        """\
        parallelism: 0
        percentageOfNodesToScore: 101
        podInitialBackoffSeconds: 5
        podMaxBackoffSeconds: 4
        leaderElection:
          leaseDuration: 10s
          renewDeadline: 10s
          retryPeriod: "0"
          resourceLock: endpoints
        colour: blue
        extenders:
        - urlPrefix: http://127.0.0.1
        profiles:
        - schedulerName: one
          percentageOfNodesToScore: -1
          plugins:
            score:
              enabled:
              - name: NodeAffinity
                weight: -2
              - {weight: 1}
            filter:
              disabled:
              - name: NodeAfinity
              enabled:
              - name: PrioritySort
        - schedulerName: one
          plugins:
            queueSort:
              enabled: [{name: PrioritySort}]
          pluginConfig:
          - name: NodeResourcesFit
          - name: NodeResourcesFit
        """
    )
    assert [line.split(": ")[0] + ": " + line.split(": ")[1] for line in found] == [
        "sched.yaml:3: parallelism",
        "sched.yaml:4: percentageOfNodesToScore",
        "sched.yaml:6: podMaxBackoffSeconds",
        "sched.yaml:8: leaderElection.leaseDuration",
        "sched.yaml:10: leaderElection.retryPeriod",
        "sched.yaml:11: leaderElection.resourceLock",
        "sched.yaml:12: colour",
        "sched.yaml:13: extenders",
        "sched.yaml:17: profiles[0].percentageOfNodesToScore",
        "sched.yaml:22: profiles[0].plugins.score.enabled[0].weight",
        "sched.yaml:23: profiles[0].plugins.score.enabled[1].name",
        "sched.yaml:26: profiles[0].plugins.filter.disabled[0].name",
        "sched.yaml:28: profiles[0].plugins.filter.enabled[0].name",
        "sched.yaml:29: profiles[1].schedulerName",
        "sched.yaml:31: profiles[1].plugins.queueSort",
        "sched.yaml:35: profiles[1].pluginConfig[1].name",
    ]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("parallelism: many", 'parallelism: must be an integer, found "many"'),
        ("parallelism: 0x10", "parallelism: must be a decimal integer"),
        ("parallelism: 99999999999", "parallelism: must be in"),
        ("parallelism: [1]", "parallelism: must be an integer, found a list"),
        ("leaderElection: {leaderElect: maybe}", "leaderElection.leaderElect: must be true or false"),
        ("leaderElection: {leaseDuration: 15}", 'leaderElection.leaseDuration: must be a duration such as "15s"'),
        ("leaderElection: {leaseDuration: 15 s}", 'leaderElection.leaseDuration: must be a duration such as "15s"'),
        ("leaderElection: yes", "leaderElection: must be a mapping"),
        ("profiles: {}", "profiles: must be a list, found a mapping"),
        ("profiles: [default]", 'profiles[0]: must be a mapping, found "default"'),
        ("profiles: [{schedulerName: 7}]", "profiles[0].schedulerName: must be text"),
        ("profiles: [{schedulerName: ''}]", "profiles[0].schedulerName: must not be empty"),
        ("profiles: [{}, {schedulerName: a}]", "profiles[0].schedulerName: is required where there are several"),
        ("parallelism: 1\nparallelism: 2", "parallelism: occurs twice"),
        ("profiles: [&a {plugins: *a}]", "profiles[0].plugins.plugins: is not a known field"),
        (
            "profiles: [{plugins: {multipoint: {enabled: [{name: NodeName}]}}}]",
            'profiles[0].plugins.multipoint: is not a known field; did you mean "multiPoint"?',
        ),
        (
            "profiles: [{plugins: {score: {enabled: [{name: NodeName, wieght: 2}]}}}]",
            'profiles[0].plugins.score.enabled[0].wieght: is not a known field; did you mean "weight"?',
        ),
        ("paralelism: 3", 'paralelism: is not a known field; did you mean "parallelism"?'),
        ("profiles: [{<<: {schedulerName: a}}]", "profiles[0]: merge keys (<<) are not read"),
        ("profiles: [{plugins: {filter: {enabled: [{name: '*'}]}}}]", "profiles[0].plugins.filter.enabled[0].name"),
        ("profiles: [{plugins: {bind: {disabled: [{name: '*'}]}}}]", "profiles[0].plugins.bind: at least one Bind plugin"),
        ("profiles: [{plugins: {queueSort: {disabled: [{name: '*'}]}}}]", "profiles[0].plugins.queueSort: exactly one"),
        ("profiles: [{plugins: {score: {enabled: [{name: EBSLimits}]}}}]", "profiles[0].plugins.score.enabled[0].name"),
        (
            "profiles: [{plugins: {multiPoint: {enabled: [{name: Nix}]}}}]",
            'profiles[0].plugins.multiPoint.enabled[0].name: "Nix"',
        ),
        (
            "profiles: [{plugins: {multiPoint: {enabled: [{name: NodeName}, {name: NodeName}]}}}]",
            'profiles[0].plugins.multiPoint: "NodeName" is enabled twice',
        ),
        (
            "profiles: [{plugins: {score: {enabled: [{name: TaintToleration, weight: 30000000}]}}}]",
            "profiles[0].plugins.score: the sum of the weights",
        ),
    ],
)
def test_a_single_fault_names_field_and_what_is_allowed(body: str, fault: str) -> None:
    found = faults_of(body)
    assert any(line.split(": ", 1)[1].startswith(fault) for line in found), found


def test_what_has_no_meaning_here_is_a_warning() -> None:
    found = read(
        """\
        clientConnection:
          kubeconfig: /etc/kubernetes/scheduler.conf
        enableProfiling: true
        enableContentionProfiling: false
        delayCacheUntilActive: true
        extenders: []
        leaderElection:
          resourceName: kube-scheduler
          resourceNamespace: kube-system
        profiles:
        - plugins:
            preScore:
              disabled: [{name: NodeAffinity}]
            reserve:
              enabled: [{name: VolumeBinding}]
            filter:
              disabled: [{name: VolumeZone}]
          pluginConfig:
          - name: VolumeBinding
            args: {bindTimeoutSeconds: 60}
        """
    )
    assert [f"{warning.line} {warning.path}" for warning in found.warnings] == [
        "3 clientConnection",
        "5 enableProfiling",
        "7 delayCacheUntilActive",
        "10 leaderElection.resourceName",
        "11 leaderElection.resourceNamespace",
        "14 profiles[0].plugins.preScore",
        "17 profiles[0].plugins.reserve.enabled[0].name",
        "21 profiles[0].pluginConfig[0].name",
    ]


def test_a_hostile_file_ends_with_an_error_not_with_the_process() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9))
    body = HEAD + bomb.replace("a8: &a8", "clientConnection: &a8")
    assert any("values that a file may hold" in line for line in faults(body))
    assert faults(HEAD + "profiles: " + "[" * 5000 + "]" * 5000)
    assert "larger than" in faults("#" * (1 << 20) + "\n")[0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15s", 15.0),
        ("1m30s", 90.0),
        ("1.5h", 5400.0),
        ("250ms", 0.25),
        ("0", 0.0),
        ("-2s", -2.0),
        (".5s", 0.5),
        ("15", None),
        ("s", None),
        ("1 s", None),
        ("", None),
        ("1d", None),
    ],
)
def test_durations_are_those_of_go(text: str, seconds: float | None) -> None:
    assert duration_seconds(text) == pytest.approx(seconds) if seconds is not None else duration_seconds(text) is None
