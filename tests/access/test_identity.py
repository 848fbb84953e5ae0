"""An identity is one exact text; what is written otherwise is refused, and told what is allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.access.identity import URI_MAX, Identity, IdentityError, IdentityKind

_KINDS = ("replica", "node", "nodes", "user", "web", "etcd")
_LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
_NAMES = st.lists(_LABEL, min_size=1, max_size=3).map(".".join)


@pytest.mark.parametrize("kind", _KINDS)
def test_each_kind_is_read_and_written_as_the_same_text(kind: str) -> None:
    uri = f"spiffe://rayched-0a1b2c3d/{kind}/alice.example"

    found = Identity.parse(uri)

    assert (found.trust_domain, found.kind, found.name) == ("rayched-0a1b2c3d", IdentityKind(kind), "alice.example")
    assert found.uri == str(found) == uri


def test_the_kinds_are_those_six() -> None:
    assert tuple(kind.value for kind in IdentityKind) == _KINDS


@given(_NAMES, st.sampled_from(_KINDS), _NAMES)
def test_what_is_written_is_read_back(trust_domain: str, kind: str, name: str) -> None:
    made = Identity(trust_domain, IdentityKind(kind), name)

    assert Identity.parse(made.uri) == made


@given(
    st.text(max_size=60)
    | st.tuples(_NAMES, st.text(max_size=12), st.text(max_size=12)).map(lambda p: f"spiffe://{p[0]}/{p[1]}/{p[2]}")
)
def test_whatever_is_read_is_written_as_it_was(uri: str) -> None:
    try:
        found = Identity.parse(uri)
    except IdentityError:
        return

    assert found.uri == uri


REFUSED = {
    "nothing": ("", 'does not begin with "spiffe://"'),
    "another scheme": ("https://rayched-1/user/alice", 'does not begin with "spiffe://"'),
    "the scheme in capitals": ("SPIFFE://rayched-1/user/alice", 'does not begin with "spiffe://"'),
    "a space before it": (" spiffe://rayched-1/user/alice", 'does not begin with "spiffe://"'),
    "no path": ("spiffe://rayched-1", "is not spiffe://TRUST-DOMAIN/KIND/NAME"),
    "no name": ("spiffe://rayched-1/user", "is not spiffe://TRUST-DOMAIN/KIND/NAME"),
    "an empty name": ("spiffe://rayched-1/user/", "name of an identity: is required"),
    "a slash at the end": ("spiffe://rayched-1/user/alice/", "is not spiffe://TRUST-DOMAIN/KIND/NAME"),
    "two slashes": ("spiffe://rayched-1//user/alice", "is not spiffe://TRUST-DOMAIN/KIND/NAME"),
    "a deeper path": ("spiffe://rayched-1/user/team/alice", "is not spiffe://TRUST-DOMAIN/KIND/NAME"),
    "no trust domain": ("spiffe:///user/alice", "trust domain of an identity: is required"),
    "a kind in capitals": (
        "spiffe://rayched-1/User/alice",
        'kind "User" is not "replica", "node", "nodes", "user", "web" or "etcd"',
    ),
    "an unknown kind": ("spiffe://rayched-1/root/alice", 'kind "root" is not "replica"'),
    "no kind": ("spiffe://rayched-1//alice", 'kind "" is not "replica"'),
    "a name in capitals": ("spiffe://rayched-1/user/Alice", 'name of an identity: "Alice" is not a valid name'),
    "a trust domain in capitals": (
        "spiffe://Rayched-1/user/alice",
        'trust domain of an identity: "Rayched-1" is not a valid name',
    ),
    "an escaped letter": ("spiffe://rayched-1/user/%61lice", 'name of an identity: "%61lice" is not a valid name'),
    "an escaped slash": ("spiffe://rayched-1/user/a%2fb", 'name of an identity: "a%2fb" is not a valid name'),
    "a port": ("spiffe://rayched-1:7420/user/alice", 'trust domain of an identity: "rayched-1:7420" is not a valid name'),
    "a user": ("spiffe://root@rayched-1/user/alice", 'trust domain of an identity: "root@rayched-1" is not a valid name'),
    "a query": ("spiffe://rayched-1/user/alice?admin=1", "name of an identity: "),
    "a fragment": ("spiffe://rayched-1/user/alice#admin", "name of an identity: "),
    "a line break at the end": ("spiffe://rayched-1/user/alice\n", 'name of an identity: "alice\\x0a" is not a valid name'),
    "a zero byte": ("spiffe://rayched-1/user/alice\0", "name of an identity: "),
    "dots": ("spiffe://rayched-1/user/..", "name of an identity: "),
    "a star": ("spiffe://rayched-1/user/*", 'name of an identity: "*" is not a valid name'),
    "a digit that is not ASCII": ("spiffe://rayched-1/user/alice٣", "name of an identity: "),
    "a letter that looks alike": ("spiffe://rayched-1/user/аlice", "name of an identity: "),
    "a name of 254 characters": (f"spiffe://rayched-1/user/{'a' * 254}", "has 254 characters; at most 253 are allowed"),
    "a trust domain of 254 characters": (f"spiffe://{'a' * 254}/user/a", "has 254 characters; at most 253 are allowed"),
    "2,049 characters": ("spiffe://" + "a/" * 1020, "has 2049 characters; at most 2048 are allowed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_exactly_an_identity_is_refused(case: str) -> None:
    uri, message = REFUSED[case]

    with pytest.raises(IdentityError) as raised:
        Identity.parse(uri)

    assert message in str(raised.value)
    assert str(raised.value).startswith("identity ")
    assert str(raised.value).isprintable()


def test_the_longest_names_are_taken() -> None:
    uri = f"spiffe://{'a' * 253}/user/{'b' * 253}"

    assert Identity.parse(uri).uri == uri
    assert len(uri) < URI_MAX


def test_an_identity_that_has_no_uri_cannot_be_made() -> None:
    with pytest.raises(IdentityError, match="name of an identity"):
        Identity("rayched-1", IdentityKind.USER, "a/b")
    with pytest.raises(IdentityError, match="trust domain of an identity"):
        Identity("", IdentityKind.USER, "a")
