"""Bindings: what may be granted, what a stored one is worth, and that names are compared exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.access.authorizing import AccessAllowed, AccessRefused, Authorizer
from rayched.access.binding_limits import NO_LIMITS, BindingLimits
from rayched.access.binding_table import BindingTable
from rayched.access.bindings import BindingErrors, RoleBinding, read_binding
from rayched.access.identity import Identity
from rayched.access.requests import RequestFacts
from rayched.v1 import access_pb2
from tests.access.matrix import binding, table_of

VERA = "spiffe://rayched-1/user/vera"
MESSAGES: dict[str, tuple[dict[str, object], str]] = {
    "no subject": ({"role": "viewer", "namespaces": ["a"]}, 'subject: identity "": does not begin with "spiffe://"'),
    "no role": (
        {"subject": VERA},
        'role: "" cannot be granted; allowed are "viewer", "submitter", "operator", "admin", "monitor" or "node"',
    ),
    "the role any": ({"subject": VERA, "role": "any"}, 'role: "any" cannot be granted'),
    "the role replica": ({"subject": VERA, "role": "replica"}, 'role: "replica" cannot be granted'),
    "a role in capitals": ({"subject": VERA, "role": "Admin"}, 'role: "Admin" cannot be granted'),
    "a node as an administrator": (
        {"subject": "spiffe://rayched-1/node/n1", "role": "admin"},
        'subject: the role admin is for an identity of the kind "user" or "web", found spiffe://rayched-1/node/n1',
    ),
    "a replica as a viewer": (
        {"subject": "spiffe://rayched-1/replica/r1", "role": "viewer", "namespaces": ["a"]},
        "subject: the role viewer is for",
    ),
    "a user as nodes": ({"subject": VERA, "role": "node", "nodes": ["n1"]}, 'identity of the kind "nodes"'),
    "a viewer of nothing": ({"subject": VERA, "role": "viewer"}, "namespaces: the role viewer needs the names of namespaces"),
    "an empty namespace": (
        {"subject": VERA, "role": "viewer", "namespaces": [""]},
        "namespaces[0]: is required",
    ),
    "a pattern": ({"subject": VERA, "role": "viewer", "namespaces": ["team-*"]}, 'namespaces[0]: "team-*" is not a valid name'),
    "a path": ({"subject": VERA, "role": "viewer", "namespaces": ["a/b"]}, 'namespaces[0]: "a/b" is not a valid name'),
    "all and one": ({"subject": VERA, "role": "viewer", "namespaces": ["*", "a"]}, "namespaces: "),
    "an administrator of a namespace": (
        {"subject": VERA, "role": "admin", "namespaces": ["a"]},
        "namespaces: the role admin is one of the cluster; must be empty",
    ),
    "a privileged viewer": (
        {"subject": VERA, "role": "viewer", "namespaces": ["a"], "privileged": True},
        "privileged: is for the role submitter, found with viewer",
    ),
    "a class of the system": (
        {"subject": VERA, "role": "submitter", "namespaces": ["a"], "priority_classes": ["system-node-critical"]},
        'priority_classes[0]: "system-node-critical" is a class of the system',
    ),
    "a rate below zero": (
        {"subject": VERA, "role": "admin", "limits": access_pb2.BindingLimits(writes=-1.0)},
        "limits.writes: found -1; allowed are 0 to 100000 calls a second",
    ),
    "a rate that is no number": (
        {"subject": VERA, "role": "admin", "limits": access_pb2.BindingLimits(heartbeats=float("nan"))},
        "limits.heartbeats: found nan",
    ),
    "more watches than a replica has": (
        {"subject": VERA, "role": "admin", "limits": access_pb2.BindingLimits(watches=10_001)},
        "limits.watches: found 10001; allowed are 0 to 10000",
    ),
    "points of a viewer's pods": (
        {"subject": VERA, "role": "viewer", "namespaces": ["a"], "limits": access_pb2.BindingLimits(pod_points=1)},
        "limits.pod_points: is for the role submitter, found with viewer",
    ),
    "a list without end": (
        {"subject": VERA, "role": "viewer", "namespaces": [f"n{number}" for number in range(101)]},
        "namespaces: found 101 entries; at most 100 are allowed",
    ),
    "no nodes": ({"subject": "spiffe://rayched-1/nodes/n", "role": "node"}, "nodes: the role node needs the names of nodes"),
    "a range backwards": (
        {"subject": "spiffe://rayched-1/nodes/n", "role": "node", "nodes": ["n-{9..1}"]},
        'nodes[0]: "n-{9..1}" is no range',
    ),
    "a range of uneven ends": (
        {"subject": "spiffe://rayched-1/nodes/n", "role": "node", "nodes": ["n-{1..10}"]},
        'nodes[0]: "n-{1..10}" is no range',
    ),
    "nodes of a viewer": (
        {"subject": VERA, "role": "viewer", "namespaces": ["a"], "nodes": ["n1"]},
        "nodes: is for the role node, found with viewer",
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_what_cannot_be_granted_is_told_by_its_field(case: str) -> None:
    fields, message = MESSAGES[case]

    with pytest.raises(BindingErrors) as raised:
        read_binding(access_pb2.RoleBinding(**fields))  # type: ignore[arg-type]

    assert message in str(raised.value)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(BindingErrors) as raised:
        read_binding(access_pb2.RoleBinding(subject="vera", role="viewer", privileged=True))

    assert [error.path for error in raised.value.errors] == ["subject", "namespaces", "privileged"]


def test_an_id_is_of_subject_role_and_namespaces_alone() -> None:
    one = binding("submitter", "submitter", "team-b", "team-a", "team-a")

    assert one.namespaces == ("team-a", "team-b")
    assert one.id == binding("submitter", "submitter", "team-a", "team-b", privileged=True).id
    others = (binding("submitter", "viewer", "team-a", "team-b"), binding("submitter", "submitter", "team-a"))
    assert len({one.id, *(other.id for other in others), binding("viewer", "submitter", "team-a", "team-b").id}) == 4
    assert read_binding(one.to_message()) == one


@pytest.mark.row("B89")
def test_a_range_of_nodes_has_its_nodes_and_no_other() -> None:
    message = access_pb2.RoleBinding(subject="spiffe://rayched-1/nodes/all", role="node", nodes=["hollow-{000..199}", "n7"])
    nodes = read_binding(message)

    assert all(nodes.has_node(f"hollow-{number:03}") for number in range(200)) and nodes.has_node("n7")
    for name in ("hollow-200", "hollow-0", "hollow-0000", "hollow-", "hollow-1x9", "hollow-٠٠١", "xhollow-001", "n77", "n", ""):
        assert not nodes.has_node(name), name


SIMILAR = ("a", "a-b", "a.b", "b", "aa", "", "*", "a/b", "A")


@given(st.sampled_from(SIMILAR), st.sampled_from(SIMILAR))
def test_a_namespace_is_covered_by_its_own_name_alone(granted: str, asked: str) -> None:
    try:
        found = read_binding(access_pb2.RoleBinding(subject=VERA, role="viewer", namespaces=[granted]))
    except BindingErrors:
        assert granted in ("", "a/b", "A", "a.b")
        return

    assert found.covers(asked) == (bool(asked) and granted in ("*", asked))


def key_of(found: RoleBinding) -> bytes:
    return f"/rayched/access/bindings/{found.id}".encode()


def value_of(found: RoleBinding) -> bytes:
    return found.to_message().SerializeToString()


def test_what_etcd_says_is_in_force_at_once_and_gone_when_it_goes() -> None:
    table, viewer, admin = BindingTable(), binding("viewer", "viewer", "team-a"), binding("admin", "admin")
    assert not table.is_known
    table.listed({key_of(viewer): value_of(viewer)})
    before = table.version
    assert table.is_known and table.of(viewer.subject) == (viewer,) and table.of(admin.subject) == ()

    table.changed([(key_of(admin), value_of(admin)), (key_of(viewer), None)])

    assert table.of(viewer.subject) == () and table.of(admin.subject) == (admin,)
    assert table.all() == [admin]
    assert table.version > before
    table.listed({})
    assert table.all() == [] and table.of(admin.subject) == ()


@pytest.mark.row("B74")
@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("a" * 16, b"\xff\xff", "what lies there is no message of that kind"),
        ("a" * 16, value_of(binding("admin", "admin")), "what lies there belongs to another key"),
        ("a" * 16, access_pb2.RoleBinding(subject=VERA, role="viewer", namespaces=["*", "a"]).SerializeToString(), "namespaces"),
    ],
)
def test_what_etcd_should_not_have_gives_nobody_anything(key: str, value: bytes, why: str) -> None:
    table, viewer = BindingTable(), binding("viewer", "viewer", "team-a")

    table.listed({key_of(viewer): value_of(viewer), f"/rayched/access/bindings/{key}".encode(): value})

    assert table.all() == [viewer]
    assert len(table.problems) == 1 and why in table.problems[0] and key in table.problems[0]
    table.changed([(f"/rayched/access/bindings/{key}".encode(), None)])
    assert table.problems == []


def test_a_built_in_binding_is_not_in_etcd() -> None:
    admin = binding("admin", "admin")
    table = BindingTable([admin])

    assert table.of(admin.subject) == (admin,)
    assert table.all() == []


@pytest.mark.row("B46")
def test_a_subject_is_one_identity_and_no_prefix_of_others() -> None:
    found = binding("viewer", "viewer", "team-a")
    authorizer = Authorizer(table_of(found))
    about = (RequestFacts("Pod", "team-a", "web"),)
    others = [f"{found.subject.uri}-b", f"{found.subject.uri}.b", found.subject.uri[:-1]]
    others += [found.subject.uri.replace("rayched-test", "rayched-tes"), found.subject.uri.replace("/user/", "/web/")]

    assert isinstance(authorizer.authorize(found.subject, "Submission.Get", about), AccessAllowed)
    for uri in others:
        answer = authorizer.authorize(Identity.parse(uri), "Submission.Get", about)
        assert isinstance(answer, AccessRefused), uri


@pytest.mark.row("B49")
def test_a_refusal_says_who_what_and_which_binding_would_do() -> None:
    authorizer = Authorizer(table_of(binding("submitter", "submitter", "team-a")))
    sam = binding("submitter", "submitter", "team-a").subject

    def said(call: str, *about: RequestFacts) -> str:
        answer = authorizer.authorize(sam, call, about)
        assert isinstance(answer, AccessRefused)
        return answer.message

    who, has = "spiffe://rayched-test/user/sam may not", "; it has submitter in team-a"
    assert said("Submission.Delete", RequestFacts("Pod", "team-b", "web")) == (
        f"{who} Submission.Delete of Pod team-b/web: that needs the role submitter in namespace team-b or admin{has}"
    )
    assert said("Submission.List", RequestFacts("Pod")) == (
        f"{who} Submission.List of pods of all namespaces: "
        f"that needs the role viewer in all namespaces (*) or submitter in all namespaces (*){has}"
    )
    assert said("Admin.Cordon", RequestFacts("Node", "", "node-1")) == (
        f"{who} Admin.Cordon of Node node-1: that needs the role operator or admin{has}"
    )
    assert said("Scheduling.GetPlanBasis", RequestFacts("-")).startswith(
        f"{who} Scheduling.GetPlanBasis of the cluster: that needs the role viewer in all namespaces (*)"
    )
    assert said("Nodes.Register", RequestFacts("Node", "", "node-1")).endswith(f"that needs the role admin{has}")
    hostile = said("Submission.Get", RequestFacts("Pod", "team-b", "a\x1b[2J\n" + "b" * 999))
    assert "Pod team-b/a\\x1b[2J\\x0a" in hostile and hostile.isprintable() and len(hostile) < 500
    nobody = authorizer.begin(Identity.parse("spiffe://rayched-test/user/nobody"), "Submission.Get")
    assert nobody is not None and nobody.message == (
        "spiffe://rayched-test/user/nobody may not Submission.Get: "
        "that needs the role viewer in a namespace or submitter in a namespace; it has no role binding"
    )


def test_limits_are_kept_with_the_binding_and_the_most_of_several_counts() -> None:
    first = binding("submitter", "submitter", "team-a", limits=access_pb2.BindingLimits(writes=400.0, watches=10, pod_points=50))
    second = binding("submitter", "submitter", "team-b", limits=access_pb2.BindingLimits(writes=300.0, reads=0.5, watches=20))
    table = table_of(first, second, binding("viewer", "viewer", "team-a"))

    assert read_binding(first.to_message()) == first and not binding("viewer", "viewer", "a").to_message().HasField("limits")
    assert table.limits_of(first.subject) == BindingLimits(writes=400.0, reads=0.5, watches=20, pod_points=50)
    assert table.limits_of(binding("viewer", "viewer", "a").subject) == NO_LIMITS
    assert first.id == binding("submitter", "submitter", "team-a").id, "other limits replace them"
