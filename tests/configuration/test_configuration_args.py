"""Arguments of plugins in a configuration file: each fault names line and field."""

from __future__ import annotations

import pytest

from tests.configuration.configuration_files import faults_of

ARGS_FAULTS = [
    ("NodeResourcesFit", "{scoringStrategy: {type: Fullest}}", "scoringStrategy.type"),
    ("NodeResourcesFit", "{scoringStrategy: {resources: [{name: cpu, weight: 101}]}}", "scoringStrategy.resources[0].weight"),
    ("NodeResourcesFit", "{scoringStrategy: {resources: [{name: cpu, weight: -1}]}}", "scoringStrategy.resources[0].weight"),
    ("NodeResourcesFit", "{scoringStrategy: {resources: [{weight: 1}]}}", "scoringStrategy.resources[0].name"),
    (
        "NodeResourcesFit",
        "{scoringStrategy: {type: RequestedToCapacityRatio}}",
        "scoringStrategy.requestedToCapacityRatio.shape",
    ),
    (
        "NodeResourcesFit",
        "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 5, score: 11}]}}}",
        "scoringStrategy.requestedToCapacityRatio.shape[0].score",
    ),
    (
        "NodeResourcesFit",
        "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: "
        "{shape: [{utilization: 5, score: 1}, {utilization: 5, score: 2}]}}}",
        "scoringStrategy.requestedToCapacityRatio.shape[1].utilization",
    ),
    ("NodeResourcesFit", '{ignoredResources: ["a b"]}', "ignoredResources[0]"),
    ("NodeResourcesFit", "{ignoredResourceGroups: [example.com/x]}", "ignoredResourceGroups[0]"),
    ("NodeResourcesFit", "{ignoredResources: example.com/foo}", "ignoredResources"),
    ("NodeResourcesFit", "{kind: NodeAffinityArgs}", "kind"),
    ("NodeResourcesFit", "{apiVersion: kubescheduler.config.k8s.io/v1beta3}", "apiVersion"),
    ("NodeResourcesBalancedAllocation", "{resources: [{name: cpu, weight: 2}]}", "resources[0].weight"),
    ("NodeResourcesBalancedAllocation", "{resources: [{name: cpu}, {name: cpu}]}", "resources[1].name"),
    ("InterPodAffinity", "{hardPodAffinityWeight: 101}", "hardPodAffinityWeight"),
    ("InterPodAffinity", "{hardPodAffinityWeight: one}", "hardPodAffinityWeight"),
    ("InterPodAffinity", "{ignorePreferredTermsOfExistingPods: 1}", "ignorePreferredTermsOfExistingPods"),
    ("DefaultPreemption", "{minCandidateNodesPercentage: 101}", "minCandidateNodesPercentage"),
    ("DefaultPreemption", "{minCandidateNodesAbsolute: -1}", "minCandidateNodesAbsolute"),
    ("PodTopologySpread", "{defaultingType: Cluster}", "defaultingType"),
    (
        "PodTopologySpread",
        "{defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]}",
        "defaultingType",
    ),
    (
        "PodTopologySpread",
        "{defaultingType: List, defaultConstraints: [{maxSkew: 0, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]}",
        "defaultConstraints[0].maxSkew",
    ),
    (
        "PodTopologySpread",
        "{defaultingType: List, defaultConstraints: [{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]}",
        "defaultConstraints[0].topologyKey",
    ),
    (
        "PodTopologySpread",
        "{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: z}]}",
        "defaultConstraints[0].whenUnsatisfiable",
    ),
    (
        "PodTopologySpread",
        "{defaultingType: List, defaultConstraints: "
        "[{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}]}",
        "defaultConstraints[0].labelSelector",
    ),
    (
        "NodeAffinity",
        "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
        "{nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Near}]}]}}}",
        "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]",
    ),
    (
        "NodeAffinity",
        "{addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: "
        "[{weight: 1, preference: {matchExpressions: [{key: a, operator: Gt, values: [x]}]}}]}}",
        "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference",
    ),
    ("NodeAffinity", "{addedAfinity: {}}", "addedAfinity"),
    ("NodeAffinity", "[1]", ""),
]


@pytest.mark.row("K8.2", "K8.3")
@pytest.mark.parametrize(("plugin", "args", "field"), ARGS_FAULTS)
def test_wrong_arguments_name_line_and_field(plugin: str, args: str, field: str) -> None:
    body = f"profiles:\n- pluginConfig:\n  - name: {plugin}\n    args: {args}\n"
    found = faults_of(body)
    path = f"profiles[0].pluginConfig[0].args{'.' if field else ''}{field}"
    assert found and found[0].startswith(f"sched.yaml:6: {path}: "), found


def test_two_zeros_of_preemption_are_refused_together() -> None:
    args = "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}"
    assert len(faults_of(f"profiles:\n- pluginConfig:\n  - {{name: DefaultPreemption, args: {args}}}\n")) == 2
