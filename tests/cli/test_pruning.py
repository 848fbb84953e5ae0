"""apply --prune: what was applied and is in the manifests no more goes, and nothing else."""

from __future__ import annotations

import pytest

from tests.cli.cluster import Commands, a_pod_text

pytestmark = pytest.mark.cluster

GATED = "schedulingGates: [{name: example.com/wait}]"


def shop(namespace: str, *names: str) -> str:
    return "---\n".join(a_pod_text(name, namespace=namespace, labels="{app: shop}", spec=GATED) for name in names)


@pytest.fixture
def applied(rayched: Commands, namespace: str) -> str:
    """a, b and c were applied; d was created, and e has another label."""
    rayched.ok("apply", "-f", "-", stdin=shop(namespace, "a", "b", "c"))
    rayched.ok("create", "-f", "-", stdin=shop(namespace, "d"))
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("e", namespace=namespace, labels="{app: other}", spec=GATED))
    return namespace


def names(rayched: Commands, namespace: str) -> list[str]:
    return sorted(pod.metadata.name for pod in rayched.client.list("pods", namespace=namespace))


def test_what_is_gone_from_the_manifests_is_deleted_by_labels(rayched: Commands, applied: str) -> None:
    words = ("apply", "-f", "-", "--prune", "-l", "app=shop")
    with rayched.nothing_changes():
        assert rayched.ok(*words, "--dry-run", stdin=shop(applied, "a")) == [
            "pod/a unchanged (server dry run)",
            "pod/b pruned (server dry run)",
            "pod/c pruned (server dry run)",
        ]
    assert rayched.ok(*words, stdin=shop(applied, "a")) == ["pod/a unchanged", "pod/b pruned", "pod/c pruned"]
    assert names(rayched, applied) == ["a", "d", "e"]


def test_all_is_whatever_was_applied_in_these_namespaces(rayched: Commands, applied: str) -> None:
    assert rayched.ok("apply", "-f", "-", "--prune", "--all", stdin=shop(applied, "a")) == [
        "pod/a unchanged",
        "pod/b pruned",
        "pod/c pruned",
        "pod/e pruned",
    ]
    assert names(rayched, applied) == ["a", "d"]


def test_only_kinds_of_the_allowlist_go(rayched: Commands, applied: str) -> None:
    words = ("apply", "-f", "-", "--prune", "--all", "--prune-allowlist", "apps/v1/ReplicaSet")
    assert rayched.ok(*words, stdin=shop(applied, "a")) == ["pod/a unchanged"]
    assert names(rayched, applied) == ["a", "b", "c", "d", "e"]


def test_nothing_goes_where_an_object_was_refused(rayched: Commands, applied: str) -> None:
    bad = a_pod_text("f", namespace=applied, labels="{app: shop}", spec="priorityClassName: none-such")
    refused = rayched("apply", "-f", "-", "--prune", "-l", "app=shop", stdin=f"{shop(applied, 'a')}---\n{bad}")
    assert refused.code == 1 and refused.lines == ["pod/a unchanged"]
    assert names(rayched, applied) == ["a", "b", "c", "d", "e"]


def test_a_selector_leaves_out_objects_of_the_manifests(rayched: Commands, applied: str) -> None:
    text = f"{shop(applied, 'a')}---\n{a_pod_text('e', namespace=applied, labels='{app: other}', spec=GATED)}"
    assert rayched.ok("apply", "-f", "-", "-l", "app=other", stdin=text) == ["pod/e unchanged"]
    none = rayched("apply", "-f", "-", "-l", "app=none", "--prune", stdin=text)
    assert (none.code, none.errors) == (1, ["error: --selector app=none: no object of the manifests has these labels"])
    assert names(rayched, applied) == ["a", "b", "c", "d", "e"]
