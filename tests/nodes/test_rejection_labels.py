"""Refused pods are counted under so many reasons and no more, whatever resources people ask for."""

from __future__ import annotations

from rayched.nodes.agent.agent_metrics import AgentMetrics


def counts(metrics: AgentMetrics) -> dict[str, float]:
    (family,) = [one for one in metrics.registry.collect() if one.name == "kubelet_admission_rejections"]
    return {one.labels["reason"]: one.value for one in family.samples if one.name.endswith("_total")}


def test_resources_of_peoples_own_share_a_series_and_so_does_what_nobody_knows() -> None:
    metrics = AgentMetrics("worker", "tree")
    known = ["OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfpods", "NodeAffinity", "NodePorts", "TaintToleration"]
    known += ["Evicted", "NodeShutdown", "NodeReplaced", "UnexpectedAdmissionError"]
    for reason in known:
        metrics.pod_refused(reason)
    assert counts(metrics) == dict.fromkeys(known, 1.0)
    for number in range(1000):
        metrics.pod_refused(f"OutOfexample.com/device-{number}")
        metrics.pod_refused(f"Whatever{number}")
    metrics.pod_refused("OutOfhugepages-2Mi")
    assert counts(metrics) == {**dict.fromkeys(known, 1.0), "OutOfExtendedResources": 1001.0, "Other": 1000.0}
