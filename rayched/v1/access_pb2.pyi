from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RoleBinding(_message.Message):
    __slots__ = ("id", "subject", "role", "namespaces", "priority_classes", "scheduler_names", "privileged", "nodes", "limits")
    ID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_CLASSES_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_NAMES_FIELD_NUMBER: _ClassVar[int]
    PRIVILEGED_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    id: str
    subject: str
    role: str
    namespaces: _containers.RepeatedScalarFieldContainer[str]
    priority_classes: _containers.RepeatedScalarFieldContainer[str]
    scheduler_names: _containers.RepeatedScalarFieldContainer[str]
    privileged: bool
    nodes: _containers.RepeatedScalarFieldContainer[str]
    limits: BindingLimits
    def __init__(self, id: _Optional[str] = ..., subject: _Optional[str] = ..., role: _Optional[str] = ..., namespaces: _Optional[_Iterable[str]] = ..., priority_classes: _Optional[_Iterable[str]] = ..., scheduler_names: _Optional[_Iterable[str]] = ..., privileged: _Optional[bool] = ..., nodes: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[BindingLimits, _Mapping]] = ...) -> None: ...

class BindingLimits(_message.Message):
    __slots__ = ("writes", "reads", "watch_starts", "heartbeats", "watches", "pod_points")
    WRITES_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    WATCH_STARTS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEATS_FIELD_NUMBER: _ClassVar[int]
    WATCHES_FIELD_NUMBER: _ClassVar[int]
    POD_POINTS_FIELD_NUMBER: _ClassVar[int]
    writes: float
    reads: float
    watch_starts: float
    heartbeats: float
    watches: int
    pod_points: int
    def __init__(self, writes: _Optional[float] = ..., reads: _Optional[float] = ..., watch_starts: _Optional[float] = ..., heartbeats: _Optional[float] = ..., watches: _Optional[int] = ..., pod_points: _Optional[int] = ...) -> None: ...

class WhoAmIRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WhoAmIResponse(_message.Message):
    __slots__ = ("identity", "bindings")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    identity: str
    bindings: _containers.RepeatedCompositeFieldContainer[RoleBinding]
    def __init__(self, identity: _Optional[str] = ..., bindings: _Optional[_Iterable[_Union[RoleBinding, _Mapping]]] = ...) -> None: ...

class CanIRequest(_message.Message):
    __slots__ = ("call", "kind", "namespace", "name", "subject")
    CALL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    call: str
    kind: str
    namespace: str
    name: str
    subject: str
    def __init__(self, call: _Optional[str] = ..., kind: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., subject: _Optional[str] = ...) -> None: ...

class CanIResponse(_message.Message):
    __slots__ = ("allowed", "reason")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    reason: str
    def __init__(self, allowed: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class GrantRequest(_message.Message):
    __slots__ = ("binding",)
    BINDING_FIELD_NUMBER: _ClassVar[int]
    binding: RoleBinding
    def __init__(self, binding: _Optional[_Union[RoleBinding, _Mapping]] = ...) -> None: ...

class GrantResponse(_message.Message):
    __slots__ = ("binding", "revision", "changed")
    BINDING_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    binding: RoleBinding
    revision: int
    changed: bool
    def __init__(self, binding: _Optional[_Union[RoleBinding, _Mapping]] = ..., revision: _Optional[int] = ..., changed: _Optional[bool] = ...) -> None: ...

class RevokeGrantRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class RevokeGrantResponse(_message.Message):
    __slots__ = ("binding", "revision")
    BINDING_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    binding: RoleBinding
    revision: int
    def __init__(self, binding: _Optional[_Union[RoleBinding, _Mapping]] = ..., revision: _Optional[int] = ...) -> None: ...

class ListGrantsRequest(_message.Message):
    __slots__ = ("subject",)
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    subject: str
    def __init__(self, subject: _Optional[str] = ...) -> None: ...

class ListGrantsResponse(_message.Message):
    __slots__ = ("bindings", "revision")
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    bindings: _containers.RepeatedCompositeFieldContainer[RoleBinding]
    revision: int
    def __init__(self, bindings: _Optional[_Iterable[_Union[RoleBinding, _Mapping]]] = ..., revision: _Optional[int] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("id", "sha256", "subject", "maker", "note", "made_at_ms", "expires_at_ms", "maker_serial")
    ID_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    MAKER_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    MADE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MAKER_SERIAL_FIELD_NUMBER: _ClassVar[int]
    id: str
    sha256: bytes
    subject: str
    maker: str
    note: str
    made_at_ms: int
    expires_at_ms: int
    maker_serial: str
    def __init__(self, id: _Optional[str] = ..., sha256: _Optional[bytes] = ..., subject: _Optional[str] = ..., maker: _Optional[str] = ..., note: _Optional[str] = ..., made_at_ms: _Optional[int] = ..., expires_at_ms: _Optional[int] = ..., maker_serial: _Optional[str] = ...) -> None: ...

class IssueTokenRequest(_message.Message):
    __slots__ = ("subject", "seconds", "note")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    subject: str
    seconds: int
    note: str
    def __init__(self, subject: _Optional[str] = ..., seconds: _Optional[int] = ..., note: _Optional[str] = ...) -> None: ...

class IssueTokenResponse(_message.Message):
    __slots__ = ("token", "secret", "revision")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    token: Token
    secret: str
    revision: int
    def __init__(self, token: _Optional[_Union[Token, _Mapping]] = ..., secret: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class ListTokensRequest(_message.Message):
    __slots__ = ("subject",)
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    subject: str
    def __init__(self, subject: _Optional[str] = ...) -> None: ...

class ListTokensResponse(_message.Message):
    __slots__ = ("tokens", "revision")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[Token]
    revision: int
    def __init__(self, tokens: _Optional[_Iterable[_Union[Token, _Mapping]]] = ..., revision: _Optional[int] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("id", "subject")
    ID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    id: str
    subject: str
    def __init__(self, id: _Optional[str] = ..., subject: _Optional[str] = ...) -> None: ...

class RevokeTokenResponse(_message.Message):
    __slots__ = ("token", "revision")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    token: Token
    revision: int
    def __init__(self, token: _Optional[_Union[Token, _Mapping]] = ..., revision: _Optional[int] = ...) -> None: ...

class SignCertificateRequest(_message.Message):
    __slots__ = ("subject", "signing_request")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SIGNING_REQUEST_FIELD_NUMBER: _ClassVar[int]
    subject: str
    signing_request: bytes
    def __init__(self, subject: _Optional[str] = ..., signing_request: _Optional[bytes] = ...) -> None: ...

class SignCertificateResponse(_message.Message):
    __slots__ = ("certificate", "authorities", "signed", "revision")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    AUTHORITIES_FIELD_NUMBER: _ClassVar[int]
    SIGNED_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    authorities: bytes
    signed: SignedCertificate
    revision: int
    def __init__(self, certificate: _Optional[bytes] = ..., authorities: _Optional[bytes] = ..., signed: _Optional[_Union[SignedCertificate, _Mapping]] = ..., revision: _Optional[int] = ...) -> None: ...

class SignedCertificate(_message.Message):
    __slots__ = ("subject", "serial", "not_after_ms", "at_ms", "by", "by_serial", "token_id")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    NOT_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    BY_SERIAL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    subject: str
    serial: str
    not_after_ms: int
    at_ms: int
    by: str
    by_serial: str
    token_id: str
    def __init__(self, subject: _Optional[str] = ..., serial: _Optional[str] = ..., not_after_ms: _Optional[int] = ..., at_ms: _Optional[int] = ..., by: _Optional[str] = ..., by_serial: _Optional[str] = ..., token_id: _Optional[str] = ...) -> None: ...

class Revocation(_message.Message):
    __slots__ = ("id", "serial", "identity", "by", "note", "at_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    serial: str
    identity: str
    by: str
    note: str
    at_ms: int
    def __init__(self, id: _Optional[str] = ..., serial: _Optional[str] = ..., identity: _Optional[str] = ..., by: _Optional[str] = ..., note: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class RevokeCertificateRequest(_message.Message):
    __slots__ = ("serial", "identity", "note")
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    serial: str
    identity: str
    note: str
    def __init__(self, serial: _Optional[str] = ..., identity: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class RevokeCertificateResponse(_message.Message):
    __slots__ = ("revocation", "revision", "changed")
    REVOCATION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    revocation: Revocation
    revision: int
    changed: bool
    def __init__(self, revocation: _Optional[_Union[Revocation, _Mapping]] = ..., revision: _Optional[int] = ..., changed: _Optional[bool] = ...) -> None: ...

class ReadmitRequest(_message.Message):
    __slots__ = ("serial", "identity")
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    serial: str
    identity: str
    def __init__(self, serial: _Optional[str] = ..., identity: _Optional[str] = ...) -> None: ...

class ReadmitResponse(_message.Message):
    __slots__ = ("revocation", "revision")
    REVOCATION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revocation: Revocation
    revision: int
    def __init__(self, revocation: _Optional[_Union[Revocation, _Mapping]] = ..., revision: _Optional[int] = ...) -> None: ...

class ListRevocationsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRevocationsResponse(_message.Message):
    __slots__ = ("revocations", "revision")
    REVOCATIONS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revocations: _containers.RepeatedCompositeFieldContainer[Revocation]
    revision: int
    def __init__(self, revocations: _Optional[_Iterable[_Union[Revocation, _Mapping]]] = ..., revision: _Optional[int] = ...) -> None: ...
