"""The bounds of fields: the last value that is allowed and the first that is not, and what is too long is not looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rayched.api import kinds
from rayched.api.validation import limits
from tests.api.invalid_fields import NODE_TERM, POD_TERM, PREFERRED_NODES, PREFERRED_PODS, SPREAD, VALID, C, changed
from tests.api.test_invalid_fields import errors_of

PORT_MAX = 65_535
KEY = {"operator": "Exists"}
SELECTOR = f"{POD_TERM}.labelSelector.matchExpressions"

Make = Callable[[int], Any]
LISTS: list[tuple[str, str, int, Make, Make]] = [
    # Kind, path, the most that are allowed, the nth good item, the nth bad one.
    (
        "Pod",
        "metadata.ownerReferences",
        limits.OWNERS,
        lambda n: {"apiVersion": "v1", "kind": "K", "name": f"n{n}", "uid": "u"},
        lambda n: {},
    ),
    ("Pod", f"{C}.ports", limits.PORTS, lambda n: {"containerPort": n + 1}, lambda n: {"containerPort": -n - 1}),
    ("Pod", "spec.tolerations", limits.TOLERATIONS, lambda n: {"key": f"k{n}", **KEY}, lambda n: {"key": "a b"}),
    ("Pod", "spec.schedulingGates", limits.SCHEDULING_GATES, lambda n: {"name": f"g{n}"}, lambda n: {"name": "a b"}),
    (
        "Pod",
        "spec.topologySpreadConstraints",
        limits.SPREAD_CONSTRAINTS,
        lambda n: {"maxSkew": 1, "topologyKey": f"k{n}", "whenUnsatisfiable": "ScheduleAnyway"},
        lambda n: {"maxSkew": 0},
    ),
    (
        "Pod",
        NODE_TERM.removesuffix("[0]"),
        limits.NODE_SELECTOR_TERMS,
        lambda n: {"matchExpressions": [{"key": f"k{n}", **KEY}]},
        lambda n: {"matchExpressions": [{"key": "a b", **KEY}]},
    ),
    (
        "Pod",
        f"{NODE_TERM}.matchExpressions",
        limits.EXPRESSIONS,
        lambda n: {"key": f"k{n}", **KEY},
        lambda n: {"key": "a b", **KEY},
    ),
    (
        "Pod",
        f"{NODE_TERM}.matchFields",
        limits.EXPRESSIONS,
        lambda n: {"key": "metadata.name", "operator": "In", "values": [f"n{n}"]},
        lambda n: {"key": "metadata.name", "operator": "In", "values": []},
    ),
    (
        "Pod",
        PREFERRED_NODES,
        limits.NODE_SELECTOR_TERMS,
        lambda n: {"weight": n % 100 + 1, "preference": {"matchExpressions": [{"key": f"k{n}", **KEY}]}},
        lambda n: {"weight": 0},
    ),
    (
        "Pod",
        POD_TERM.removesuffix("[0]"),
        limits.POD_AFFINITY_TERMS,
        lambda n: {"topologyKey": f"k{n}"},
        lambda n: {"topologyKey": ""},
    ),
    (
        "Pod",
        PREFERRED_PODS,
        limits.POD_AFFINITY_TERMS,
        lambda n: {"weight": 100, "podAffinityTerm": {"topologyKey": f"k{n}"}},
        lambda n: {"weight": 101, "podAffinityTerm": {"topologyKey": "z"}},
    ),
    ("Pod", f"{POD_TERM}.namespaces", limits.NAMESPACES, lambda n: f"n{n}", lambda n: "A B"),
    ("Pod", f"{POD_TERM}.matchLabelKeys", limits.LABEL_KEYS, lambda n: f"k{n}", lambda n: "a b"),
    ("Pod", f"{POD_TERM}.mismatchLabelKeys", limits.LABEL_KEYS, lambda n: f"k{n}", lambda n: "a b"),
    ("Pod", SELECTOR, limits.EXPRESSIONS, lambda n: {"key": f"k{n}", **KEY}, lambda n: {"key": "a b", **KEY}),
    ("Node", "spec.taints", limits.TAINTS, lambda n: {"key": f"k{n}", "effect": "NoExecute"}, lambda n: {"key": "a b"}),
    ("Node", "status.images", limits.IMAGES, lambda n: {"names": [f"i{n}"]}, lambda n: {"sizeBytes": -1}),
    ("Service", "spec.ports", limits.PORTS, lambda n: {"port": n + 1, "name": f"p{n}"}, lambda n: {"port": 0}),
]
MAPS: list[tuple[str, str, int, str, str]] = [
    # Kind, path, the most that are allowed, a good value, a bad one.
    ("Pod", "metadata.labels", limits.LABELS, "x", "a b"),
    ("Node", "metadata.annotations", limits.ANNOTATIONS, "x", "x"),
    ("Pod", "spec.nodeSelector", limits.LABELS, "x", "a b"),
    ("Pod", f"{POD_TERM}.labelSelector.matchLabels", limits.EXPRESSIONS, "x", "a b"),
    ("Pod", f"{C}.resources.limits", limits.RESOURCES, "1", "-1"),
    ("Pod", "spec.overhead", limits.RESOURCES, "1", "-1"),
    ("Node", "status.capacity", limits.NODE_RESOURCES, "1", "-1"),
    ("Node", "status.allocatable", limits.NODE_RESOURCES, "1", "-1"),
    ("RuntimeClass", "overhead.podFixed", limits.RESOURCES, "1", "-1"),
    ("RuntimeClass", "scheduling.nodeSelector", limits.LABELS, "x", "a b"),
    ("Service", "spec.selector", limits.LABELS, "x", "a b"),
]
NUMBERS: list[tuple[str, str, int, int | None]] = [
    # Kind, path, the least and the most that is allowed.
    ("Pod", "metadata.generation", 0, None),
    ("Pod", "spec.terminationGracePeriodSeconds", 0, 2**31 - 1),
    ("Pod", "spec.activeDeadlineSeconds", 1, 2**31 - 1),
    ("Pod", f"{C}.ports[0].containerPort", 1, PORT_MAX),
    ("Pod", f"{C}.ports[0].hostPort", 0, PORT_MAX),
    ("Pod", f"{SPREAD}.maxSkew", 1, None),
    ("Pod", f"{SPREAD}.minDomains", 1, None),
    ("Pod", f"{PREFERRED_NODES}[0].weight", 1, 100),
    ("Pod", f"{PREFERRED_PODS}[0].weight", 1, 100),
    ("Node", "status.images[0].sizeBytes", 0, None),
    ("PodDisruptionBudget", "spec.minAvailable", 0, None),
    ("Service", "spec.ports[0].port", 1, PORT_MAX),
    ("Service", "spec.ports[0].nodePort", 0, PORT_MAX),
    *(
        (kind, f"spec.{field}", 0, None)
        for kind in ("ReplicaSet", "StatefulSet", "ReplicationController")
        for field in ("replicas", "minReadySeconds")
    ),
    *(("Job", f"spec.{field}", 0, None) for field in ("activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")),
    ("Event", "count", 0, None),
]


def named(table: list[Any]) -> Any:
    return pytest.mark.parametrize("row", table, ids=[f"{row[0]}-{row[1][-60:]}" for row in table])


def places(document: dict[str, Any]) -> list[str]:
    return [error.path for error in errors_of(document)]


@named(LISTS)
def test_a_list_may_be_as_long_as_is_said_and_a_longer_one_is_not_looked_at(row: tuple[str, str, int, Make, Make]) -> None:
    kind, path, most, good, bad = row
    items = [good(number) for number in range(most)]
    assert [place for place in places(changed(kind, path, items)) if place.startswith(path)] == []
    bad_item = bad(0)
    assert any(place.startswith(path) for place in places(changed(kind, path, [*items[1:], bad_item]))), "the last one counts"
    errors = errors_of(changed(kind, path, [bad(number) for number in range(most + 1)]))
    assert [(error.path, error.message) for error in errors] == [(path, f"has {most + 1} entries; at most {most} are allowed")]


@named(MAPS)
def test_a_map_may_have_as_many_entries_as_is_said_and_a_larger_one_is_not_looked_at(row: tuple[str, str, int, str, str]) -> None:
    kind, path, most, good, bad = row
    entries = {f"example.com/k{number}": good for number in range(most)}
    assert [place for place in places(changed(kind, path, entries)) if place.startswith(path)] == []
    errors = errors_of(changed(kind, path, {f"example.com/k{number}": bad for number in range(most + 1)}))
    assert [error.path for error in errors if error.path.startswith(path)] == [path]
    assert f"has {most + 1} entries; at most {most} are allowed" in {error.message for error in errors}


@named(NUMBERS)
def test_a_number_may_lie_on_its_bounds_and_not_beyond_them(row: tuple[str, str, int, int | None]) -> None:
    kind, path, least, most = row
    assert path not in places(changed(kind, path, least))
    assert path in places(changed(kind, path, least - 1))
    if most is not None:
        assert path not in places(changed(kind, path, most)) or most == 2**31 - 1
        assert path in places(changed(kind, path, most + 1))


@pytest.mark.parametrize("kind", [kind.name for kind in kinds.KINDS])
def test_the_metadata_of_every_kind_are_looked_at(kind: str) -> None:
    for path, value in (("metadata.name", "A b"), ("metadata.generation", -1), ('metadata.labels["a"]', "a b")):
        document = changed(kind, path, value)
        assert path in places(document)


@pytest.mark.parametrize("kind", [kind.name for kind in kinds.KINDS])
def test_an_empty_object_of_every_kind_has_faults_and_none_is_raised(kind: str) -> None:
    document = {"apiVersion": VALID[kind]["apiVersion"], "kind": kind}
    assert "metadata.name" in places(document)


@pytest.mark.parametrize(
    ("kind", "path", "value", "place"),
    [
        ("Service", "spec.selector", {"a b": "c"}, 'spec.selector["a b"]'),
        ("Service", "spec.ports[0].protocol", "tcp", "spec.ports[0].protocol"),
        ("Service", "spec.ports[0].name", "A b", "spec.ports[0].name"),
        ("Service", "spec.ports[0].targetPort", "a b", "spec.ports[0].targetPort"),
        ("Service", "spec.ports", [{"port": 1, "name": "a"}, {"port": 2}], "spec.ports[1].name"),
        ("Service", "spec.ports", [{"port": 1, "name": "a"}, {"port": 2, "name": "a"}], "spec.ports[1].name"),
        ("RuntimeClass", "scheduling.nodeSelector", {"a b": "c"}, 'scheduling.nodeSelector["a b"]'),
        ("RuntimeClass", "handler", "A b", "handler"),
        ("Node", "spec.taints[0].value", "a b", "spec.taints[0].value"),
        ("Node", "spec.taints[0].effect", "Evict", "spec.taints[0].effect"),
        ("Node", "spec.podCIDR", "10.0.0.0.0/8", "spec.podCIDR"),
        ("Node", 'status.capacity["a b"]', "1", 'status.capacity["a b"]'),
        ("Node", 'status.allocatable["a b"]', "1", 'status.allocatable["a b"]'),
        ("Node", "status.images[0].names", ["i"] * (limits.IMAGE_NAMES + 1), "status.images[0].names"),
        ("PodDisruptionBudget", "spec.selector.matchLabels", {"a b": "c"}, 'spec.selector.matchLabels["a b"]'),
        ("PodDisruptionBudget", "spec.unhealthyPodEvictionPolicy", "x", "spec.unhealthyPodEvictionPolicy"),
        ("PodDisruptionBudget", "spec.minAvailable", "1000%", "spec.minAvailable"),
        ("ReplicationController", "spec.template.spec.dnsPolicy", "x", "spec.template.spec.dnsPolicy"),
        ("StatefulSet", "spec.selector.matchLabels", {}, "spec.selector"),
        ("ReplicaSet", "spec.template.metadata.annotations", {"a b": "c"}, 'spec.template.metadata.annotations["a b"]'),
        ("Pod", "spec.hostname", "a.b", "spec.hostname"),
        ("Pod", "spec.subdomain", "a.b", "spec.subdomain"),
        ("Pod", "spec.serviceAccountName", "A b", "spec.serviceAccountName"),
        ("Pod", "spec.runtimeClassName", "A b", "spec.runtimeClassName"),
        ("Pod", "spec.initContainers[0].name", "A b", "spec.initContainers[0].name"),
        ("Pod", "status.phase", "Gone", "status.phase"),
        ("Pod", "status.nominatedNodeName", "A b", "status.nominatedNodeName"),
        (
            "Pod",
            "status.containerStatuses",
            [{"name": "c"}, {"name": "d", "allocatedResources": {"cpu": "x"}}],
            'status.containerStatuses[1].allocatedResources["cpu"]',
        ),
        (
            "Pod",
            "status",
            {
                "containerStatuses": [{"name": "c"}],
                "initContainerStatuses": [{"name": "i", "resources": {"limits": {"cpu": "x"}}}],
            },
            'status.initContainerStatuses[0].resources.limits["cpu"]',
        ),
    ],
)
def test_one_more_wrong_field_gives_its_path_first(kind: str, path: str, value: Any, place: str) -> None:
    assert places(changed(kind, path, value))[0] == place


def test_a_node_port_of_an_ordinary_container_is_taken_and_one_of_a_finished_init_container_is_free() -> None:
    def pod(restart: str | None) -> dict[str, Any]:
        init = {"name": "i", "ports": [{"containerPort": 1, "hostPort": 9}], **({"restartPolicy": restart} if restart else {})}
        return changed(
            "Pod",
            "spec",
            {"containers": [{"name": "c", "ports": [{"containerPort": 2, "hostPort": 9}]}], "initContainers": [init]},
        )

    assert places(pod(None)) == []
    assert places(pod("Always")) == ["spec.containers[0].ports[0].hostPort"]
    others = [{"containerPort": 1, "hostPort": 9, "hostIP": "10.0.0.1"}, {"containerPort": 1, "hostPort": 9, "protocol": "UDP"}]
    assert places(changed("Pod", f"{C}.ports", others)) == []
