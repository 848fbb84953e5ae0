"""The eight parsers of hostile text: what each may be given, what it may raise, and what holds of what it lets through.

Each target is a function of bytes. It returns what became of them in a few words (an "outcome", by which a fuzzer tells new
ground from old), and raises AssertionError, or whatever the parser raised that it does not document. A refusal has to be one line
of printable text of bounded length, as it goes to a client and into logs.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from rayched.access.authorizing import Authorizer
from rayched.access.binding_table import BindingTable
from rayched.access.identity import Identity, IdentityError, IdentityKind
from rayched.access.tokens import BearerToken, hash_of
from rayched.api import names, quantity
from rayched.api.errors import ManifestErrors
from rayched.api.manifest import read_text, write_text
from rayched.api.quantity import QuantityError
from rayched.api.selectors import SelectorError
from rayched.api.yaml_text import TextError
from rayched.pki.errors import PkiError
from rayched.pki.signing_requests import requested_key
from rayched.server.call_guard import TOKEN_METADATA, CallGuard
from rayched.server.errors import ApiFailure, Code
from rayched.server.listing import _token as read_continue_token
from rayched.server.watching.selection import select
from rayched.v1.services_pb2 import ContinueToken

REFUSAL_CHARACTERS_MAX: Final = 2_000
_REFUSALS_MAX: Final = 100
"""Of one input are looked at."""
NOW: Final = 1_800_000_000.0
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_NUMBER: Final = re.compile(r"[0-9]+")
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')

Check = Callable[[bytes], str]


@dataclass(frozen=True, slots=True)
class ParserTarget:
    """One parser. `corpus` is well-formed; `words` are what its grammar is made of."""

    name: str
    check: Check
    corpus: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()


def text_of(data: bytes) -> str:
    """As gRPC hands texts over: what is no UTF-8 never comes so far."""
    return data.decode(errors="replace")


def all_refused(said: Sequence[object]) -> str:
    """The same of several refusals: what the first is about."""
    first, *_ = [refused(one) for one in said[:_REFUSALS_MAX]]
    return first


def refused(said: object) -> str:
    """What the refusal is about, without what differs from text to text."""
    text = str(said)
    assert len(text) <= REFUSAL_CHARACTERS_MAX, f"a refusal of {len(text)} characters: {text[:200]!r}"
    assert text and not _CONTROL.search(text), f"a refusal that is no line of printable text: {text[:200]!r}"
    return _NUMBER.sub("N", _QUOTED.sub('""', text))[:80]


# -------------------------------------------------------------------------------------------------------- selectors, quantities


def check_selectors(data: bytes) -> str:
    """Label selector, NUL, field selector."""
    labels, _, fields = text_of(data).partition("\0")
    try:
        found = select("Pod", "default", labels, fields)
    except SelectorError as error:
        return refused(error)
    again = select("Pod", "default", f" {labels} ", f" {fields} ")
    assert again.digest() == found.digest(), "blanks around it make another selector of it"
    return f"{len(found.labels.items)} labels, {len(found.fields.terms)} fields"


def check_quantity(data: bytes) -> str:
    text = text_of(data)
    try:
        found = quantity.parse(text)
    except QuantityError as error:
        return refused(error)
    canonical = found.canonical()
    if quantity.fault(text) is not None:
        # No object may carry it: where it has as many digits as are read, its canonical text may have more.
        return f"{found.format.name} refused"
    again = quantity.parse(canonical)
    assert not again.compare(found), f"{text!r} is {canonical!r}, which is {again.canonical()!r}"
    # A binary amount that no suffix fits, as 312.5Ki, has none; read again it is a decimal one.
    assert quantity.canonical(again.canonical()) == again.canonical()
    assert len(canonical) <= quantity.MAX_LENGTH
    return f"{found.format.name} {len(canonical)}"


# -------------------------------------------------------------------------------------------------------------- continue tokens

_SELECTION: Final = select("Pod", "team-a", "app=web", "")
_CONTINUE: Final = ContinueToken(revision=7, after_key=b"/rayched/cluster/pods/team-a/web", query=_SELECTION.digest())


def check_continue_token(data: bytes) -> str:
    try:
        found = read_continue_token(text_of(data), _SELECTION)
    except ApiFailure as failure:
        assert failure.code is Code.INVALID_ARGUMENT
        return refused(failure.message)
    if found == ContinueToken():
        assert not text_of(data)
        return "none"
    assert found.revision > 0 and found.after_key and found.query == _SELECTION.digest()
    return "taken"


# ------------------------------------------------------------------------------------------------------------------------ names

_RULES: Final[tuple[tuple[Callable[[str], str | None], str, int], ...]] = (
    (names.subdomain_fault, r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", 253),
    (names.label_fault, r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", 63),
    (names.label_1035_fault, r"[a-z]([-a-z0-9]*[a-z0-9])?", 63),
    (names.label_value_fault, r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", 63),
)
"""The patterns are those of Kubernetes' documentation."""


def check_names(data: bytes) -> str:
    text, outcome = text_of(data), []
    for rule, pattern, longest in _RULES:
        fault = rule(text)
        if fault is not None:
            refused(fault)
        # The documented patterns take long for what is long.
        meant = len(text) <= longest and re.fullmatch(pattern, text, re.ASCII) is not None
        assert (fault is None) is meant, f"{rule.__name__} of {text!r}: {fault}"
        outcome.append("allowed" if fault is None else "refused")
    fault = names.qualified_fault(text)
    return " ".join([*outcome, "allowed" if fault is None else refused(fault)])


# --------------------------------------------------------------------------------------------------------------- who somebody is

_DOMAIN: Final = "rayched-0a1b2c3d"
_USER: Final = Identity(_DOMAIN, IdentityKind.USER, "ann")
_SECRET: Final = "s" * 42 + "A"
_TOKEN: Final = BearerToken("abcdefgh", hash_of(_SECRET), _USER, _USER, "", NOW - 60, NOW + 60)


class _WithoutCertificate:
    """A call at the port of tokens, as gRPC shows it."""

    def __init__(self, shown: str) -> None:
        self._shown = shown

    def peer(self) -> str:
        return "ipv4:192.0.2.1:4711"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"transport_security_type": [b"ssl"]}

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ((TOKEN_METADATA, self._shown),)


def _guard() -> CallGuard:
    guard = CallGuard(Authorizer(BindingTable()), takes_tokens=True, serial_of=lambda _: "", clock=lambda: NOW)
    guard.tokens.listed({b"/rayched/access/tokens/abcdefgh": _TOKEN.stored()})
    return guard


_GUARD: Final = _guard()


def check_bearer_header(data: bytes) -> str:
    shown = text_of(data)
    try:
        caller = _GUARD.identify(_WithoutCertificate(shown))
    except ApiFailure as failure:
        assert failure.code is Code.UNAUTHENTICATED
        return refused(failure.message)
    scheme, _, text = shown.partition(" ")
    assert scheme.lower() == "bearer" and text == _TOKEN.text(_SECRET) and caller.identity == _USER
    return "taken"


def check_identity(data: bytes) -> str:
    text = text_of(data)
    try:
        found = Identity.parse(text)
    except IdentityError as error:
        return refused(error)
    assert found.uri == text
    return found.kind.value


def _csr(curve: ec.EllipticCurve) -> bytes:
    """Equal at each run."""
    key = ec.derive_private_key(7, curve)
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256(), ecdsa_deterministic=True).public_bytes(Encoding.PEM)


def check_csr(data: bytes) -> str:
    try:
        key = requested_key(data, "the request")
    except PkiError as error:
        return refused(error)
    assert key.curve.name == "secp256r1"
    request = x509.load_pem_x509_csr(data)
    algorithm = request.signature_hash_algorithm
    assert algorithm is not None
    key.verify(request.signature, request.tbs_certrequest_bytes, ec.ECDSA(algorithm))
    return "taken"


def check_csr_content(data: bytes) -> str:
    """The same of DER, put into PEM."""
    body = base64.encodebytes(data).decode()
    return check_csr(f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n".encode())


# ------------------------------------------------------------------------------------------------------------------------- YAML

_POD: Final = b"""apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - &main {name: main, image: "a:1", resources: {requests: {cpu: 100m, memory: 1Gi}}}
  - {<<: *main, name: side}
"""


def check_yaml(data: bytes) -> str:
    text = text_of(data)
    try:
        found = read_text(text, "a file")
    except TextError as error:
        return refused(error)
    except ManifestErrors as error:
        return f"{len(error.errors) > 1} {all_refused(error.errors)}"
    objects = [one.object for one in found]
    again: list[Any] = [one.object for one in read_text(write_text(objects), "its own writing")] if objects else []
    assert again == objects, "what was read and written is read as something else"
    return f"{len(objects)} objects"


TARGETS: Final = (
    ParserTarget(
        "selectors",
        check_selectors,
        (
            b"app=web,tier!=db,env in (a,b),team notin (c),canary,!old,cores>4\0spec.nodeName=node-1",
            b"a==b\0status.phase!=Running",
        ),
        (b" in (", b" notin (", b"!=", b"==", b",", b"(", b")", b"!", b">", b"<", b"\0", b"metadata.name=", b"kubernetes.io/"),
    ),
    ParserTarget(
        "quantities",
        check_quantity,
        (b"100m", b"1.5Gi", b"312.5Ki", b"1e3", b"-0.000000001", b"9223372036854775807", b"7Ei", b"12E", b"+3k"),
        (b"Ki", b"Mi", b"Ei", b"e", b"E", b"n", b"u", b"m", b".", b"-", b"+", b"0" * 20, b"9" * 20),
    ),
    ParserTarget(
        "continue-tokens",
        check_continue_token,
        (base64.urlsafe_b64encode(_CONTINUE.SerializeToString()), b""),
        (b"=", b"==", b"-", b"_", b"AAAA"),
    ),
    ParserTarget(
        "names",
        check_names,
        (b"web-1", b"a.b.c", b"example.com/role", b"x" * 63, b"y" * 253, b"0-0"),
        (b".", b"-", b"--", b"/", b"_", b"\n", b"\xc3\xa9", b"A", b"kubernetes.io/"),
    ),
    ParserTarget(
        "bearer-header",
        check_bearer_header,
        (f"Bearer {_TOKEN.text(_SECRET)}".encode(), b"bearer join.abcdefgh." + _SECRET.encode()),
        (b"Bearer ", b"rt_", b"join.", b"abcdefgh", b"_", b" ", b"\n", _SECRET.encode()),
    ),
    ParserTarget(
        "identities",
        check_identity,
        tuple(f"spiffe://{_DOMAIN}/{kind.value}/name".encode() for kind in IdentityKind),
        (b"spiffe://", b"/", b"..", b"%2f", b"user", b"replica", b"node", b"SPIFFE", b"?", b"#", b"@"),
    ),
    ParserTarget("csr", check_csr, (_csr(ec.SECP256R1()), _csr(ec.SECP384R1())), (b"-----BEGIN ", b"-----END ", b"\n", b"=")),
    ParserTarget(
        "csr-content",
        check_csr_content,
        tuple(x509.load_pem_x509_csr(_csr(curve)).public_bytes(Encoding.DER) for curve in (ec.SECP256R1(), ec.SECP384R1())),
        (b"\x30\x82", b"\x02\x01\x00", b"\x06\x08", b"\xa0\x00", b"\xff\xff\xff\xff"),
    ),
    ParserTarget(
        "yaml",
        check_yaml,
        (_POD, b'{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}]}'),
        (b"&a ", b"*a", b"<<: ", b"- ", b": ", b"\n---\n", b"!!int ", b"|\n", b"? ", b"[", b"'", b"1e999", b"0x"),
    ),
)
