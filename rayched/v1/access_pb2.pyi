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
