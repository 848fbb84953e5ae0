"""Who may adopt whom, against looking at all of them, and at what cost."""

from __future__ import annotations

from cProfile import Profile
from pstats import Stats
from random import Random

import pytest

from rayched.api.selectors import LabelSelectorMatcher
from rayched.controllers.workloads.owned_pods import OwnedPod, facts_of_pod
from rayched.controllers.workloads.selector_index import SelectorIndex
from rayched.v1.core_pb2 import Pod
from rayched.v1.meta_pb2 import LabelSelector
from tests.controllers.workload_world import as_entry


def a_pod(name: str, namespace: str = "default", **labels: str) -> OwnedPod:
    pod = Pod(metadata={"name": name, "namespace": namespace, "labels": labels})
    return facts_of_pod(as_entry(pod, 1), pod)


def add(index: SelectorIndex, owner: str, namespace: str = "default", **labels: str) -> list[str]:
    selector = LabelSelector(match_labels=labels)
    if not labels:
        selector.match_expressions.add(key="a", operator="Exists")
    return [pod.name for pod in index.add(owner, namespace, labels, LabelSelectorMatcher(selector))]


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_who_selects_whom_as_looking_at_all_would(seed: int) -> None:
    random, index = Random(seed), SelectorIndex()
    wanted: dict[str, tuple[str, dict[str, str]]] = {}
    pods: dict[bytes, tuple[str, OwnedPod]] = {}

    def selects(owner: str, namespace: str, pod: OwnedPod) -> bool:
        within, labels = wanted[owner]
        matches = labels.items() <= pod.labels.items() if labels else "a" in pod.labels
        return within == namespace and matches

    for number in range(400):
        namespace = random.choice(["default", "other"])
        labels = {key: random.choice("xy") for key in random.sample("abc", random.randint(0, 3))}
        match random.randrange(5):
            case 0 | 1:
                wanted[f"o{number}"] = namespace, labels
                found = add(index, f"o{number}", namespace, **labels)
                assert sorted(found) == sorted(pod.name for at, pod in pods.values() if selects(f"o{number}", at, pod))
            case 2 | 3:
                pod = a_pod(f"p{number}", namespace, **labels)
                pods[pod.key] = namespace, pod
                index.put_pod(namespace, pod)
                assert sorted(index.selecting(namespace, pod)) == sorted(one for one in wanted if selects(one, namespace, pod))
            case _:
                if wanted:
                    index.remove(gone := random.choice(list(wanted)))
                    del wanted[gone]
                if pods:
                    key = random.choice(list(pods))
                    assert index.take_pod(key) is pods.pop(key)[1]


def looks(profile: Profile) -> int:
    stats = Stats(profile).stats  # type: ignore[attr-defined]
    return sum(calls[1] for (path, _, name), calls in stats.items() if name == "matches" and path.endswith("selectors.py"))


def test_a_label_that_all_have_costs_nothing_where_another_one_tells_more() -> None:
    index, count = SelectorIndex(), 300
    with Profile() as profile:
        for number in range(count):
            pod = a_pod(f"p{number}", app="web", tier=f"t{number}")
            index.put_pod("default", pod)
            assert list(index.selecting("default", pod)) == []
            assert add(index, f"o{number}", app="web", tier=f"t{number}") == [f"p{number}"]
        for number in range(count):
            pod = index.take_pod(a_pod(f"p{number}", app="web", tier=f"t{number}").key)
            assert list(index.selecting("default", pod)) == [f"o{number}"]
    assert looks(profile) < 20 * count
