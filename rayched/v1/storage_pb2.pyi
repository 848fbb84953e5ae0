from rayched.v1 import services_pb2 as _services_pb2
from rayched.v1 import workloads_pb2 as _workloads_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Stored(_message.Message):
    __slots__ = ("object", "leader_write", "group_plan")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    LEADER_WRITE_FIELD_NUMBER: _ClassVar[int]
    GROUP_PLAN_FIELD_NUMBER: _ClassVar[int]
    object: _workloads_pb2.Object
    leader_write: LeaderWrite
    group_plan: GroupPlan
    def __init__(self, object: _Optional[_Union[_workloads_pb2.Object, _Mapping]] = ..., leader_write: _Optional[_Union[LeaderWrite, _Mapping]] = ..., group_plan: _Optional[_Union[GroupPlan, _Mapping]] = ...) -> None: ...

class GroupPlan(_message.Message):
    __slots__ = ("group_uid", "group_revision", "min_count", "members", "made_at_ms")
    GROUP_UID_FIELD_NUMBER: _ClassVar[int]
    GROUP_REVISION_FIELD_NUMBER: _ClassVar[int]
    MIN_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MADE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    group_uid: str
    group_revision: int
    min_count: int
    members: _containers.RepeatedCompositeFieldContainer[PlannedMember]
    made_at_ms: int
    def __init__(self, group_uid: _Optional[str] = ..., group_revision: _Optional[int] = ..., min_count: _Optional[int] = ..., members: _Optional[_Iterable[_Union[PlannedMember, _Mapping]]] = ..., made_at_ms: _Optional[int] = ...) -> None: ...

class PlannedMember(_message.Message):
    __slots__ = ("uid", "name", "node")
    UID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    uid: str
    name: str
    node: str
    def __init__(self, uid: _Optional[str] = ..., name: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class LeaderWrite(_message.Message):
    __slots__ = ("op", "epoch", "attempt", "decided_at_revision")
    OP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DECIDED_AT_REVISION_FIELD_NUMBER: _ClassVar[int]
    op: str
    epoch: int
    attempt: str
    decided_at_revision: int
    def __init__(self, op: _Optional[str] = ..., epoch: _Optional[int] = ..., attempt: _Optional[str] = ..., decided_at_revision: _Optional[int] = ...) -> None: ...

class SubmissionRecord(_message.Message):
    __slots__ = ("key", "digest", "uid", "expires_at_ms", "warnings")
    KEY_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    key: _services_pb2.ObjectKey
    digest: bytes
    uid: str
    expires_at_ms: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, key: _Optional[_Union[_services_pb2.ObjectKey, _Mapping]] = ..., digest: _Optional[bytes] = ..., uid: _Optional[str] = ..., expires_at_ms: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("renewed_at_ms",)
    RENEWED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    renewed_at_ms: int
    def __init__(self, renewed_at_ms: _Optional[int] = ...) -> None: ...

class AgentRecord(_message.Message):
    __slots__ = ("agent_id", "machine_id", "boot_id", "agent_version", "address", "registered_at_ms", "replaces_machine", "replaced_before")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REPLACES_MACHINE_FIELD_NUMBER: _ClassVar[int]
    REPLACED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    machine_id: str
    boot_id: str
    agent_version: str
    address: str
    registered_at_ms: int
    replaces_machine: bool
    replaced_before: int
    def __init__(self, agent_id: _Optional[str] = ..., machine_id: _Optional[str] = ..., boot_id: _Optional[str] = ..., agent_version: _Optional[str] = ..., address: _Optional[str] = ..., registered_at_ms: _Optional[int] = ..., replaces_machine: _Optional[bool] = ..., replaced_before: _Optional[int] = ...) -> None: ...

class CompactionRecord(_message.Message):
    __slots__ = ("moments",)
    MOMENTS_FIELD_NUMBER: _ClassVar[int]
    moments: _containers.RepeatedCompositeFieldContainer[CompactionMoment]
    def __init__(self, moments: _Optional[_Iterable[_Union[CompactionMoment, _Mapping]]] = ...) -> None: ...

class CompactionMoment(_message.Message):
    __slots__ = ("revision", "at_ms")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    at_ms: int
    def __init__(self, revision: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class Suspect(_message.Message):
    __slots__ = ("deaths", "last_at_ms", "told_by")
    DEATHS_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TOLD_BY_FIELD_NUMBER: _ClassVar[int]
    deaths: int
    last_at_ms: int
    told_by: str
    def __init__(self, deaths: _Optional[int] = ..., last_at_ms: _Optional[int] = ..., told_by: _Optional[str] = ...) -> None: ...
