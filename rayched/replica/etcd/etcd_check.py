"""What an etcd lets its clients do, asked of it without changing anything.

Each question is a request whose permission etcd judges before anything is done: counts of keys, transactions whose condition
never holds, a compaction to a revision that nothing is before. One lease of some seconds is made and given back.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

from leader.channel import SecureEndpoints, open_channel
from leader.etcd_shim import rpc
from rayched.replica.etcd.known_holes import EtcdHole, EtcdVersion, holes_of

_SECONDS_MAX: Final = 5.0
_NEVER: Final = 1 << 62
"""A revision that no key was made at."""
_FOREIGN: Final = b"\x01rayched-etcd-check"
"""A key that is nobody's."""
_LEASE_SECONDS: Final = 5
_AUTH_STATUS: Final = "/etcdserverpb.Auth/AuthStatus"
_ENABLED_FIELD: Final = 2
_DENIED_WORDS: Final = ("permission denied", "user name is empty", "invalid auth token", "authentication")


class EtcdRight(enum.Enum):
    """The answer to whether something is allowed."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "?"
    """etcd could not say."""


@dataclass(frozen=True, slots=True)
class EtcdMemberFacts:
    """Of one endpoint; `fault`: why there is no version."""

    endpoint: str
    version: EtcdVersion | None = None
    fault: str = ""

    def holes(self) -> list[EtcdHole]:
        return [] if self.version is None else holes_of(self.version)


@dataclass(frozen=True, slots=True)
class EtcdFacts:
    """Of an etcd as its client meets it."""

    members: tuple[EtcdMemberFacts, ...]
    has_users: bool | None
    """Whether it asks who its clients are; None: it does not say."""
    rights: tuple[tuple[str, EtcdRight], ...]
    """What this client may do, in the order of what it needs."""


def check_etcd_access(endpoints: Sequence[str], root: str) -> EtcdFacts:
    """`endpoints`: SecureEndpoints where there is TLS; `root`: what the cluster's keys begin with.

    Raises EndpointError, TlsFileError.
    """
    members = []
    for endpoint in endpoints:
        with closing(open_channel(_only(endpoints, endpoint))) as channel:
            members.append(_member(endpoint, channel))
    with closing(open_channel(endpoints)) as channel:
        return EtcdFacts(tuple(members), _has_users(channel), tuple(_rights(channel, root)))


def _only(endpoints: Sequence[str], endpoint: str) -> Sequence[str]:
    return SecureEndpoints([endpoint], endpoints.tls) if isinstance(endpoints, SecureEndpoints) else [endpoint]


def _member(endpoint: str, channel: grpc.Channel) -> EtcdMemberFacts:
    try:
        answer = rpc.MaintenanceStub(channel).Status(rpc.StatusRequest(), timeout=_SECONDS_MAX, wait_for_ready=True)
        first, second, third = (int(part) for part in answer.version.split("-")[0].split("."))
    except grpc.RpcError as error:
        return EtcdMemberFacts(endpoint, fault=f"{error.code().name}: {error.details()}")
    except ValueError:
        return EtcdMemberFacts(endpoint, fault=f"its version {answer.version!r} is none")
    return EtcdMemberFacts(endpoint, (first, second, third))


def _has_users(channel: grpc.Channel) -> bool | None:
    # The generated code is older than this call.
    ask = channel.unary_unary(_AUTH_STATUS)
    try:
        data = ask(b"", timeout=_SECONDS_MAX)
    except grpc.RpcError as error:
        return True if _is_denied(error) else None
    # Its stub does not say that it can be iterated over.
    fields: Any = UnknownFieldSet(Empty.FromString(data))
    return any(one.field_number == _ENABLED_FIELD and one.data for one in fields)


def _rights(channel: grpc.Channel, root: str) -> list[tuple[str, EtcdRight]]:
    kv, lease = rpc.KVStub(channel), rpc.LeaseStub(channel)
    own, own_end = f"{root}/".encode(), f"{root}0".encode()
    own_key = own + b"etcd-check"
    put = rpc.RequestOp(request_put=rpc.PutRequest(key=_FOREIGN))

    def leased() -> None:
        granted = lease.LeaseGrant(rpc.LeaseGrantRequest(TTL=_LEASE_SECONDS), timeout=_SECONDS_MAX)
        lease.LeaseRevoke(rpc.LeaseRevokeRequest(ID=granted.ID), timeout=_SECONDS_MAX)

    questions: dict[str, Callable[[], Any]] = {
        f"read keys below {root}/": lambda: kv.Range(_count(own, own_end), timeout=_SECONDS_MAX),
        f"write keys below {root}/": lambda: kv.Txn(
            _never(own_key, rpc.RequestOp(request_put=rpc.PutRequest(key=own_key))), timeout=_SECONDS_MAX
        ),
        "take leases": leased,
        "compact": lambda: kv.Compact(rpc.CompactionRequest(revision=1), timeout=_SECONDS_MAX),
        "read all keys": lambda: kv.Range(_count(b"\0", b"\0"), timeout=_SECONDS_MAX),
        "write any key": lambda: kv.Txn(_never(own_key, put), timeout=_SECONDS_MAX),
        "write any key by a nested transaction": lambda: kv.Txn(
            _never(own_key, rpc.RequestOp(request_txn=_never(own_key, put))), timeout=_SECONDS_MAX
        ),
    }
    return [(what, _asked(question)) for what, question in questions.items()]


def _count(key: bytes, end: bytes) -> Any:
    return rpc.RangeRequest(key=key, range_end=end, count_only=True)


def _never(key: bytes, operation: Any) -> Any:
    """A transaction that does nothing, and that etcd judges all the same; `key`: one whose revision may be looked at."""
    compare = rpc.Compare(result=rpc.Compare.GREATER, target=rpc.Compare.CREATE, key=key, create_revision=_NEVER)
    return rpc.TxnRequest(compare=[compare], success=[operation])


def _asked(question: Callable[[], Any]) -> EtcdRight:
    try:
        question()
    except grpc.RpcError as error:
        if _is_denied(error):
            return EtcdRight.NO
        # What was compacted before was judged first.
        return EtcdRight.YES if error.code() is grpc.StatusCode.OUT_OF_RANGE else EtcdRight.UNKNOWN
    return EtcdRight.YES


def _is_denied(error: Any) -> bool:
    if error.code() in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED):
        return True
    return error.code() is grpc.StatusCode.INVALID_ARGUMENT and any(word in error.details() for word in _DENIED_WORDS)
