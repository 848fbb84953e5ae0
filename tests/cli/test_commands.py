"""delete, cordon, taint, label, leader, hollow-nodes: what they print, what they change, how they end."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.cluster import Commands, a_pod_text, run_here, started, wait_until

pytestmark = pytest.mark.cluster


# ---------------------------------------------------------------------------------------------------------------- delete


def test_delete_takes_names_selectors_and_all(rayched: Commands, web: str) -> None:
    assert rayched.ok("delete", "pod/db", "-n", web) == [f'pod "db" deleted from {web} namespace']
    assert rayched.gone("db", web)
    assert rayched.ok("delete", "pods", "-l", "app=web", "-n", web) == [
        f'pod "web-0" deleted from {web} namespace',
        f'pod "web-1" deleted from {web} namespace',
    ]
    assert rayched.gone("web-0", web)
    assert rayched("delete", "pods", "--all", "-n", web).errors == ["No resources found"]


def test_delete_of_a_file_removes_what_apply_of_it_made_the_namespace_last(rayched: Commands, name: str) -> None:
    text = f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}\n---\n{a_pod_text('web', namespace=name)}"
    rayched.ok("apply", "-f", "-", stdin=text)
    rayched.running("web", name)
    assert rayched.ok("delete", "-f", "-", stdin=text) == [
        f'pod "web" deleted from {name} namespace',
        f'namespace "{name}" deleted',
    ]


def test_what_cannot_stop_is_told_after_the_timeout_and_goes_at_once_with_grace_period_0(
    rayched: Commands, namespace: str, name: str
) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text(name, namespace=namespace, spec="nodeName: nowhere"))
    waited = rayched("delete", "pod", name, "-n", namespace, "--timeout", "200ms")
    assert waited.code == 1
    assert waited.errors == [
        f"error: pod/{name} has been asked to stop and is still there; --grace-period 0 removes it without its node's answer"
    ]
    assert rayched.ok("get", "pod", name, "-n", namespace, "--no-headers")[0].split()[2] == "Terminating"
    assert rayched.ok("delete", "pod", name, "-n", namespace, "--grace-period", "0") == [
        f'pod "{name}" force deleted from {namespace} namespace'
    ]
    assert rayched.gone(name, namespace)


# -------------------------------------------------------------------------------------------------- cordon, taint, label


def test_cordon_and_uncordon_say_what_they_changed(rayched: Commands, cordoned: str) -> None:
    assert rayched.ok("cordon", cordoned) == [f"node/{cordoned} cordoned"]
    assert rayched.ok("cordon", f"node/{cordoned}") == [f"node/{cordoned} already cordoned"]
    assert rayched.ok("get", "node", cordoned, "--no-headers")[0].split()[1] == "Ready,SchedulingDisabled"
    assert rayched.ok("uncordon", "-l", f"kubernetes.io/hostname={cordoned}") == [f"node/{cordoned} uncordoned"]
    assert rayched.ok("uncordon", cordoned) == [f"node/{cordoned} already uncordoned"]


@pytest.mark.row("K5.1")
def test_taints_are_set_replaced_and_removed_by_effect_or_by_key(rayched: Commands, cordoned: str) -> None:
    def taints() -> list[str]:
        lines = rayched.ok("describe", "node", cordoned)
        first = next(index for index, line in enumerate(lines) if line.startswith("Taints:"))
        last = next(index for index, line in enumerate(lines) if line.startswith("Unschedulable:"))
        return [line.removeprefix("Taints:").strip() for line in lines[first:last]]

    def change(*words: str) -> list[str]:
        return rayched.ok("taint", "nodes", cordoned, *words)

    assert change("dedicated=a:NoSchedule", "dedicated=a:NoExecute", "other:PreferNoSchedule") == [f"node/{cordoned} tainted"]
    assert taints() == ["dedicated=a:NoSchedule", "dedicated=a:NoExecute", "other:PreferNoSchedule"]
    assert change("dedicated=a:NoSchedule") == [f"node/{cordoned} not changed"]
    with rayched.nothing_changes():
        refused = rayched("taint", "nodes", cordoned, "dedicated=b:NoSchedule")
    assert refused.code == 1
    assert refused.errors[0].endswith("--overwrite replaces it")
    assert change("dedicated=b:NoSchedule", "--overwrite") == [f"node/{cordoned} tainted"]
    assert change("dedicated:NoExecute-") == [f"node/{cordoned} untainted"]
    assert taints() == ["dedicated=b:NoSchedule", "other:PreferNoSchedule"]
    assert change("dedicated-", "other=x:NoSchedule") == [f"node/{cordoned} modified"]
    assert taints() == ["other:PreferNoSchedule", "other=x:NoSchedule"]
    assert change("other-") == [f"node/{cordoned} untainted"]
    assert taints() == ["<none>"]
    with rayched.nothing_changes():
        missing = rayched("taint", "nodes", cordoned, "other-")
    assert missing.errors == [f'error: Node {cordoned}: taint "other": the node does not have it']


def test_labels_are_set_replaced_and_removed_on_any_kind(rayched: Commands, web: str, cordoned: str) -> None:
    assert rayched.ok("label", "pods", "web-0", "web-1", "-n", web, "tier=x", "example.com/team=y") == [
        "pod/web-0 labeled",
        "pod/web-1 labeled",
    ]
    assert rayched.ok("label", "pods", "-l", "tier=x", "-n", web, "example.com/team-") == [
        "pod/web-0 unlabeled",
        "pod/web-1 unlabeled",
    ]
    assert rayched.ok("label", "pod/web-0", "-n", web, "tier=x") == ["pod/web-0 not labeled"]
    with rayched.nothing_changes():
        refused = rayched("label", "pods", "--all", "-n", web, "tier=z")
    assert refused.code == 1
    assert [line.endswith("--overwrite replaces it") for line in refused.errors] == [True, True, True]
    assert rayched.ok("label", "pods", "--all", "-n", web, "tier=z", "--overwrite") == [
        f"pod/{name} labeled" for name in ("db", "web-0", "web-1")
    ]
    assert rayched.ok("label", "node", cordoned, "tier=x") == [f"node/{cordoned} labeled"]
    assert rayched.ok("get", "nodes", "-l", "tier=x", "-o", "name") == [f"node/{cordoned}"]


# ---------------------------------------------------------------------------------------------------------------- leader


def test_leader_says_who_leads_as_a_table_as_json_and_as_it_changes(rayched: Commands) -> None:
    headings, row = (line.split() for line in rayched.ok("leader"))
    assert headings == ["HOLDER", "ADDRESS", "EPOCH", "TRANSITIONS", "ACQUIRED"]
    found = json.loads("\n".join(rayched.ok("leader", "-o", "json")))
    assert [found["holder"], found["address"], str(found["epoch"])] == row[:3]
    assert found["address"] == rayched.server
    replica = found["replica"]
    assert replica["revision"] >= found["epoch"] and replica["memory_bytes"] > 10 << 20
    assert (replica["certificate_seconds_left"], replica["fenced_writes"]) == (None, {})
    with started("leader", "-w", environment={"RAYCHED_SERVER": rayched.server}) as watch:
        assert [watch.line().split(), watch.line().split()] == [headings, row]


def test_version_says_which_one_it_is() -> None:
    result = run_here(["--version"])
    assert result.code == 0
    assert re.fullmatch(r"rayched \d+\.\d+\.\d+, commit [0-9a-f]{40}(-dirty)?", result.lines[0])


# --------------------------------------------------------------------------------------------------------- hollow-nodes


def test_hollow_nodes_register_answer_for_pods_and_leave_with_exit_code_0(rayched: Commands, namespace: str) -> None:
    words = "hollow-nodes 2 --prefix extra --zones 0 --cpu 2 --resource example.com/widget=4 --label pool=extra"
    with started(*words.split(), environment={"RAYCHED_SERVER": rayched.server}) as agents:
        assert agents.line() == f"2 hollow nodes registered at {rayched.server}"
        spec = "nodeSelector: {pool: extra}"
        pod = a_pod_text("widget", namespace=namespace, cpu="1, example.com/widget: 3", spec=spec)
        rayched.ok("apply", "-f", "-", stdin=pod)
        assert rayched.running("widget", namespace).spec.node_name in ("extra-000", "extra-001")
        rayched.ok("delete", "pod", "widget", "-n", namespace)
        wait_until(lambda: rayched.gone("widget", namespace), "the agent has removed the pod")
        assert agents.end() == 0
    rayched.ok("delete", "nodes", "-l", "pool=extra")


def test_hollow_nodes_fall_silent_when_they_are_told_to_and_come_back(rayched: Commands) -> None:
    words = "hollow-nodes 2 --prefix mute --zones 0 --silent-after 0.1 --silent-nodes 1 --silent-for 0.1"
    with started(*words.split(), environment={"RAYCHED_SERVER": rayched.server}) as agents:
        for line in ("2 hollow nodes registered", "1 node silent", "1 node back"):
            agents.line_with(line)
        assert agents.end() == 0
    rayched.ok("delete", "nodes", "mute-000", "mute-001")
