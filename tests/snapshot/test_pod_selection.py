"""Terms of pods: compiled once for all pods with the same affinity, and never taken for another's."""

from __future__ import annotations

import pytest

from rayched.api.selectors import SelectorError
from rayched.snapshot import pod_selection
from rayched.snapshot.pod_selection import TermKind, terms_of, terms_of_bound
from rayched.v1.core_pb2 import Pod


def a_pod(namespace: str, *apps: str, key: str = "zone") -> Pod:
    pod = Pod()
    pod.metadata.namespace = namespace
    for app in apps:
        term = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.add(topology_key=key)
        term.label_selector.match_labels["app"] = app
    return pod


def test_terms_are_about_the_namespace_of_the_pod_that_carries_them() -> None:
    for namespace in ("a", "b", "a"):
        (term,) = terms_of(a_pod(namespace, "x"))
        assert term.kind is TermKind.REQUIRED_ANTI_AFFINITY and term.namespaces == {namespace}
        assert term.matches(namespace, {"app": "x"}, {}) and not term.matches(namespace, {"app": "y"}, {})
    assert terms_of(Pod()) == ()


def test_a_pod_that_is_changed_is_compiled_anew() -> None:
    pod = a_pod("a", "x")
    (before,) = terms_of(pod)
    pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution[0].topology_key = "host"
    (after,) = terms_of(pod)
    assert (before.topology_key, after.topology_key) == ("zone", "host")


def test_terms_that_do_not_compile_say_so_each_time() -> None:
    pod = a_pod("a", "x")
    term = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution[0]
    term.label_selector.match_expressions.add(key="app", operator="Resembles")
    for _ in range(2):
        with pytest.raises(SelectorError):
            terms_of(pod)
        assert terms_of_bound(pod) == ()


def test_what_is_kept_is_bounded() -> None:
    for number in range(pod_selection._TERMS_MAX + 20):
        (term,) = terms_of(a_pod("a", f"x{number}"))
        assert term.matches("a", {"app": f"x{number}"}, {})
    assert pod_selection._terms.cache_info().currsize <= pod_selection._TERMS_MAX
    misses = pod_selection._terms.cache_info().misses
    many = [f"x{number}" for number in range(200)]
    assert len(terms_of(a_pod("a", *many))) == 200
    assert pod_selection._terms.cache_info().misses == misses, "a large affinity is compiled each time"
