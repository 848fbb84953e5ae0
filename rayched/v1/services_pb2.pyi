from rayched.v1 import core_pb2 as _core_pb2
from rayched.v1 import workloads_pb2 as _workloads_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FieldViolation(_message.Message):
    __slots__ = ("object", "field", "message")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    object: str
    field: str
    message: str
    def __init__(self, object: _Optional[str] = ..., field: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class LeaderAddress(_message.Message):
    __slots__ = ("holder", "address", "epoch")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    holder: str
    address: str
    epoch: int
    def __init__(self, holder: _Optional[str] = ..., address: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class ResumeFrom(_message.Message):
    __slots__ = ("revision", "first_available")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    FIRST_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    revision: int
    first_available: int
    def __init__(self, revision: _Optional[int] = ..., first_available: _Optional[int] = ...) -> None: ...

class BudgetRefusal(_message.Message):
    __slots__ = ("budget", "disruptions_allowed", "current_healthy", "desired_healthy", "expected_pods")
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    DISRUPTIONS_ALLOWED_FIELD_NUMBER: _ClassVar[int]
    CURRENT_HEALTHY_FIELD_NUMBER: _ClassVar[int]
    DESIRED_HEALTHY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_PODS_FIELD_NUMBER: _ClassVar[int]
    budget: str
    disruptions_allowed: int
    current_healthy: int
    desired_healthy: int
    expected_pods: int
    def __init__(self, budget: _Optional[str] = ..., disruptions_allowed: _Optional[int] = ..., current_healthy: _Optional[int] = ..., desired_healthy: _Optional[int] = ..., expected_pods: _Optional[int] = ...) -> None: ...

class SupersededAgent(_message.Message):
    __slots__ = ("incarnation",)
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    def __init__(self, incarnation: _Optional[int] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("code", "message", "violations", "retry_after_milliseconds", "superseded_incarnation")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDED_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    violations: _containers.RepeatedCompositeFieldContainer[FieldViolation]
    retry_after_milliseconds: int
    superseded_incarnation: int
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., violations: _Optional[_Iterable[_Union[FieldViolation, _Mapping]]] = ..., retry_after_milliseconds: _Optional[int] = ..., superseded_incarnation: _Optional[int] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("object", "dry_run")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    object: _workloads_pb2.Object
    dry_run: bool
    def __init__(self, object: _Optional[_Union[_workloads_pb2.Object, _Mapping]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("uid", "revision", "object", "warnings")
    UID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    uid: str
    revision: int
    object: _workloads_pb2.Object
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, uid: _Optional[str] = ..., revision: _Optional[int] = ..., object: _Optional[_Union[_workloads_pb2.Object, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class SubmitManyRequest(_message.Message):
    __slots__ = ("objects",)
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    objects: _containers.RepeatedCompositeFieldContainer[_workloads_pb2.Object]
    def __init__(self, objects: _Optional[_Iterable[_Union[_workloads_pb2.Object, _Mapping]]] = ...) -> None: ...

class SubmitManyResponse(_message.Message):
    __slots__ = ("results",)
    class Result(_message.Message):
        __slots__ = ("outcome", "uid", "revision", "warnings")
        OUTCOME_FIELD_NUMBER: _ClassVar[int]
        UID_FIELD_NUMBER: _ClassVar[int]
        REVISION_FIELD_NUMBER: _ClassVar[int]
        WARNINGS_FIELD_NUMBER: _ClassVar[int]
        outcome: Outcome
        uid: str
        revision: int
        warnings: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ..., uid: _Optional[str] = ..., revision: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SubmitManyResponse.Result]
    def __init__(self, results: _Optional[_Iterable[_Union[SubmitManyResponse.Result, _Mapping]]] = ...) -> None: ...

class ApplyRequest(_message.Message):
    __slots__ = ("object", "dry_run", "replace")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    object: _workloads_pb2.Object
    dry_run: bool
    replace: bool
    def __init__(self, object: _Optional[_Union[_workloads_pb2.Object, _Mapping]] = ..., dry_run: _Optional[bool] = ..., replace: _Optional[bool] = ...) -> None: ...

class ApplyResponse(_message.Message):
    __slots__ = ("action", "revision", "object", "warnings")
    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACTION_UNSPECIFIED: _ClassVar[ApplyResponse.Action]
        CREATED: _ClassVar[ApplyResponse.Action]
        CONFIGURED: _ClassVar[ApplyResponse.Action]
        UNCHANGED: _ClassVar[ApplyResponse.Action]
    ACTION_UNSPECIFIED: ApplyResponse.Action
    CREATED: ApplyResponse.Action
    CONFIGURED: ApplyResponse.Action
    UNCHANGED: ApplyResponse.Action
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    action: ApplyResponse.Action
    revision: int
    object: _workloads_pb2.Object
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, action: _Optional[_Union[ApplyResponse.Action, str]] = ..., revision: _Optional[int] = ..., object: _Optional[_Union[_workloads_pb2.Object, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ObjectKey(_message.Message):
    __slots__ = ("kind", "namespace", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: str
    namespace: str
    name: str
    def __init__(self, kind: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: ObjectKey
    def __init__(self, key: _Optional[_Union[ObjectKey, _Mapping]] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("object",)
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    object: _workloads_pb2.Object
    def __init__(self, object: _Optional[_Union[_workloads_pb2.Object, _Mapping]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("kind", "namespace", "label_selector", "field_selector", "limit", "revision")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    FIELD_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    kind: str
    namespace: str
    label_selector: str
    field_selector: str
    limit: int
    revision: int
    def __init__(self, kind: _Optional[str] = ..., namespace: _Optional[str] = ..., label_selector: _Optional[str] = ..., field_selector: _Optional[str] = ..., limit: _Optional[int] = ..., revision: _Optional[int] = ..., **kwargs) -> None: ...

class ContinueToken(_message.Message):
    __slots__ = ("revision", "after_key", "query")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    AFTER_KEY_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    revision: int
    after_key: bytes
    query: bytes
    def __init__(self, revision: _Optional[int] = ..., after_key: _Optional[bytes] = ..., query: _Optional[bytes] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("objects", "revision")
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_FIELD_NUMBER: _ClassVar[int]
    objects: _containers.RepeatedCompositeFieldContainer[_workloads_pb2.Object]
    revision: int
    def __init__(self, objects: _Optional[_Iterable[_Union[_workloads_pb2.Object, _Mapping]]] = ..., revision: _Optional[int] = ..., **kwargs) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("key", "uid", "grace_period_seconds")
    KEY_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GRACE_PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    key: ObjectKey
    uid: str
    grace_period_seconds: int
    def __init__(self, key: _Optional[_Union[ObjectKey, _Mapping]] = ..., uid: _Optional[str] = ..., grace_period_seconds: _Optional[int] = ...) -> None: ...

class DeleteResponse(_message.Message):
    __slots__ = ("revision", "object")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    revision: int
    object: _workloads_pb2.Object
    def __init__(self, revision: _Optional[int] = ..., object: _Optional[_Union[_workloads_pb2.Object, _Mapping]] = ...) -> None: ...

class EvictRequest(_message.Message):
    __slots__ = ("namespace", "name", "uid", "resource_version", "grace_period_seconds", "dry_run")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    GRACE_PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    uid: str
    resource_version: str
    grace_period_seconds: int
    dry_run: bool
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., resource_version: _Optional[str] = ..., grace_period_seconds: _Optional[int] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class EvictResponse(_message.Message):
    __slots__ = ("revision", "pod", "budget")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    revision: int
    pod: _core_pb2.Pod
    budget: str
    def __init__(self, revision: _Optional[int] = ..., pod: _Optional[_Union[_core_pb2.Pod, _Mapping]] = ..., budget: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("kind", "namespace", "label_selector", "field_selector", "start_revision")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    FIELD_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    START_REVISION_FIELD_NUMBER: _ClassVar[int]
    kind: str
    namespace: str
    label_selector: str
    field_selector: str
    start_revision: int
    def __init__(self, kind: _Optional[str] = ..., namespace: _Optional[str] = ..., label_selector: _Optional[str] = ..., field_selector: _Optional[str] = ..., start_revision: _Optional[int] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("events", "revision", "unreadable")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[WatchEvent]
    revision: int
    unreadable: _containers.RepeatedCompositeFieldContainer[ObjectKey]
    def __init__(self, events: _Optional[_Iterable[_Union[WatchEvent, _Mapping]]] = ..., revision: _Optional[int] = ..., unreadable: _Optional[_Iterable[_Union[ObjectKey, _Mapping]]] = ...) -> None: ...

class WatchEvent(_message.Message):
    __slots__ = ("type", "object", "revision")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TYPE_UNSPECIFIED: _ClassVar[WatchEvent.Type]
        ADDED: _ClassVar[WatchEvent.Type]
        MODIFIED: _ClassVar[WatchEvent.Type]
        DELETED: _ClassVar[WatchEvent.Type]
        BOOKMARK: _ClassVar[WatchEvent.Type]
    TYPE_UNSPECIFIED: WatchEvent.Type
    ADDED: WatchEvent.Type
    MODIFIED: WatchEvent.Type
    DELETED: WatchEvent.Type
    BOOKMARK: WatchEvent.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    type: WatchEvent.Type
    object: _workloads_pb2.Object
    revision: int
    def __init__(self, type: _Optional[_Union[WatchEvent.Type, str]] = ..., object: _Optional[_Union[_workloads_pb2.Object, _Mapping]] = ..., revision: _Optional[int] = ...) -> None: ...

class RegisterNodeRequest(_message.Message):
    __slots__ = ("node", "agent_id", "machine_id", "boot_id", "agent_version", "address", "take_over", "last_incarnation")
    NODE_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TAKE_OVER_FIELD_NUMBER: _ClassVar[int]
    LAST_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    node: _core_pb2.Node
    agent_id: str
    machine_id: str
    boot_id: str
    agent_version: str
    address: str
    take_over: bool
    last_incarnation: int
    def __init__(self, node: _Optional[_Union[_core_pb2.Node, _Mapping]] = ..., agent_id: _Optional[str] = ..., machine_id: _Optional[str] = ..., boot_id: _Optional[str] = ..., agent_version: _Optional[str] = ..., address: _Optional[str] = ..., take_over: _Optional[bool] = ..., last_incarnation: _Optional[int] = ...) -> None: ...

class RegisterNodeResponse(_message.Message):
    __slots__ = ("node", "revision", "incarnation", "replaced_before", "node_monitor_grace_seconds")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REPLACED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    NODE_MONITOR_GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    node: _core_pb2.Node
    revision: int
    incarnation: int
    replaced_before: int
    node_monitor_grace_seconds: float
    def __init__(self, node: _Optional[_Union[_core_pb2.Node, _Mapping]] = ..., revision: _Optional[int] = ..., incarnation: _Optional[int] = ..., replaced_before: _Optional[int] = ..., node_monitor_grace_seconds: _Optional[float] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("nodes", "incarnations")
    class IncarnationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NODES_FIELD_NUMBER: _ClassVar[int]
    INCARNATIONS_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    incarnations: _containers.ScalarMap[str, int]
    def __init__(self, nodes: _Optional[_Iterable[str]] = ..., incarnations: _Optional[_Mapping[str, int]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("unknown", "superseded")
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDED_FIELD_NUMBER: _ClassVar[int]
    unknown: _containers.RepeatedScalarFieldContainer[str]
    superseded: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, unknown: _Optional[_Iterable[str]] = ..., superseded: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateNodeStatusRequest(_message.Message):
    __slots__ = ("name", "status", "incarnation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    status: _core_pb2.NodeStatus
    incarnation: int
    def __init__(self, name: _Optional[str] = ..., status: _Optional[_Union[_core_pb2.NodeStatus, _Mapping]] = ..., incarnation: _Optional[int] = ...) -> None: ...

class UpdateNodeStatusResponse(_message.Message):
    __slots__ = ("node", "revision")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    node: _core_pb2.Node
    revision: int
    def __init__(self, node: _Optional[_Union[_core_pb2.Node, _Mapping]] = ..., revision: _Optional[int] = ...) -> None: ...

class PodStatusUpdate(_message.Message):
    __slots__ = ("namespace", "name", "uid", "status", "remove")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    uid: str
    status: _core_pb2.PodStatus
    remove: bool
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., status: _Optional[_Union[_core_pb2.PodStatus, _Mapping]] = ..., remove: _Optional[bool] = ...) -> None: ...

class UpdatePodStatusRequest(_message.Message):
    __slots__ = ("updates", "node", "incarnation")
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    updates: _containers.RepeatedCompositeFieldContainer[PodStatusUpdate]
    node: str
    incarnation: int
    def __init__(self, updates: _Optional[_Iterable[_Union[PodStatusUpdate, _Mapping]]] = ..., node: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class UpdatePodStatusResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ...) -> None: ...

class WatchNodeRequest(_message.Message):
    __slots__ = ("name", "start_revision", "takes_unreadable", "incarnation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_REVISION_FIELD_NUMBER: _ClassVar[int]
    TAKES_UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    start_revision: int
    takes_unreadable: bool
    incarnation: int
    def __init__(self, name: _Optional[str] = ..., start_revision: _Optional[int] = ..., takes_unreadable: _Optional[bool] = ..., incarnation: _Optional[int] = ...) -> None: ...

class NodeEvent(_message.Message):
    __slots__ = ("kind", "namespace", "name", "uid", "type", "reason", "message", "count", "first_at_ms", "last_at_ms")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FIRST_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_MS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    message: str
    count: int
    first_at_ms: int
    last_at_ms: int
    def __init__(self, kind: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., type: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., count: _Optional[int] = ..., first_at_ms: _Optional[int] = ..., last_at_ms: _Optional[int] = ...) -> None: ...

class ReportEventsRequest(_message.Message):
    __slots__ = ("node", "incarnation", "events")
    NODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    node: str
    incarnation: int
    events: _containers.RepeatedCompositeFieldContainer[NodeEvent]
    def __init__(self, node: _Optional[str] = ..., incarnation: _Optional[int] = ..., events: _Optional[_Iterable[_Union[NodeEvent, _Mapping]]] = ...) -> None: ...

class ReportEventsResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ...) -> None: ...

class CordonRequest(_message.Message):
    __slots__ = ("node", "unschedulable")
    NODE_FIELD_NUMBER: _ClassVar[int]
    UNSCHEDULABLE_FIELD_NUMBER: _ClassVar[int]
    node: str
    unschedulable: bool
    def __init__(self, node: _Optional[str] = ..., unschedulable: _Optional[bool] = ...) -> None: ...

class CordonResponse(_message.Message):
    __slots__ = ("node", "changed")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    node: _core_pb2.Node
    changed: bool
    def __init__(self, node: _Optional[_Union[_core_pb2.Node, _Mapping]] = ..., changed: _Optional[bool] = ...) -> None: ...

class TaintRequest(_message.Message):
    __slots__ = ("node", "add", "remove", "overwrite")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    OVERWRITE_FIELD_NUMBER: _ClassVar[int]
    node: str
    add: _containers.RepeatedCompositeFieldContainer[_core_pb2.Taint]
    remove: _containers.RepeatedCompositeFieldContainer[_core_pb2.Taint]
    overwrite: bool
    def __init__(self, node: _Optional[str] = ..., add: _Optional[_Iterable[_Union[_core_pb2.Taint, _Mapping]]] = ..., remove: _Optional[_Iterable[_Union[_core_pb2.Taint, _Mapping]]] = ..., overwrite: _Optional[bool] = ...) -> None: ...

class TaintResponse(_message.Message):
    __slots__ = ("node", "changed")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    node: _core_pb2.Node
    changed: bool
    def __init__(self, node: _Optional[_Union[_core_pb2.Node, _Mapping]] = ..., changed: _Optional[bool] = ...) -> None: ...

class LabelRequest(_message.Message):
    __slots__ = ("key", "set", "remove", "overwrite")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KEY_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    OVERWRITE_FIELD_NUMBER: _ClassVar[int]
    key: ObjectKey
    set: _containers.ScalarMap[str, str]
    remove: _containers.RepeatedScalarFieldContainer[str]
    overwrite: bool
    def __init__(self, key: _Optional[_Union[ObjectKey, _Mapping]] = ..., set: _Optional[_Mapping[str, str]] = ..., remove: _Optional[_Iterable[str]] = ..., overwrite: _Optional[bool] = ...) -> None: ...

class LabelResponse(_message.Message):
    __slots__ = ("object", "changed")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    object: _workloads_pb2.Object
    changed: bool
    def __init__(self, object: _Optional[_Union[_workloads_pb2.Object, _Mapping]] = ..., changed: _Optional[bool] = ...) -> None: ...

class ScaleRequest(_message.Message):
    __slots__ = ("key", "replicas", "current_replicas")
    KEY_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    key: ObjectKey
    replicas: int
    current_replicas: int
    def __init__(self, key: _Optional[_Union[ObjectKey, _Mapping]] = ..., replicas: _Optional[int] = ..., current_replicas: _Optional[int] = ...) -> None: ...

class ScaleResponse(_message.Message):
    __slots__ = ("object", "changed", "previous_replicas")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    object: _workloads_pb2.Object
    changed: bool
    previous_replicas: int
    def __init__(self, object: _Optional[_Union[_workloads_pb2.Object, _Mapping]] = ..., changed: _Optional[bool] = ..., previous_replicas: _Optional[int] = ...) -> None: ...

class GetLeaderRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLeaderResponse(_message.Message):
    __slots__ = ("holder", "address", "epoch", "transitions", "acquired_at_ms", "renewed_at_ms", "lease_duration_ms", "answered_by", "version", "stands_for_election", "problems", "replica")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TRANSITIONS_FIELD_NUMBER: _ClassVar[int]
    ACQUIRED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    RENEWED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STANDS_FOR_ELECTION_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    holder: str
    address: str
    epoch: int
    transitions: int
    acquired_at_ms: int
    renewed_at_ms: int
    lease_duration_ms: int
    answered_by: str
    version: str
    stands_for_election: bool
    problems: _containers.RepeatedScalarFieldContainer[str]
    replica: ReplicaState
    def __init__(self, holder: _Optional[str] = ..., address: _Optional[str] = ..., epoch: _Optional[int] = ..., transitions: _Optional[int] = ..., acquired_at_ms: _Optional[int] = ..., renewed_at_ms: _Optional[int] = ..., lease_duration_ms: _Optional[int] = ..., answered_by: _Optional[str] = ..., version: _Optional[str] = ..., stands_for_election: _Optional[bool] = ..., problems: _Optional[_Iterable[str]] = ..., replica: _Optional[_Union[ReplicaState, _Mapping]] = ...) -> None: ...

class ReplicaState(_message.Message):
    __slots__ = ("revision", "memory_bytes", "certificate_seconds_left", "fenced_writes")
    class FencedWritesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    REVISION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_SECONDS_LEFT_FIELD_NUMBER: _ClassVar[int]
    FENCED_WRITES_FIELD_NUMBER: _ClassVar[int]
    revision: int
    memory_bytes: int
    certificate_seconds_left: float
    fenced_writes: _containers.ScalarMap[str, int]
    def __init__(self, revision: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., certificate_seconds_left: _Optional[float] = ..., fenced_writes: _Optional[_Mapping[str, int]] = ...) -> None: ...

class BindRequest(_message.Message):
    __slots__ = ("hops", "namespace", "name", "uid", "node")
    HOPS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    hops: int
    namespace: str
    name: str
    uid: str
    node: str
    def __init__(self, hops: _Optional[int] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class BindResponse(_message.Message):
    __slots__ = ("uid", "revision")
    UID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    uid: str
    revision: int
    def __init__(self, uid: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("hops", "namespace", "name", "nodes", "limit")
    HOPS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    hops: int
    namespace: str
    name: str
    nodes: _containers.RepeatedScalarFieldContainer[str]
    limit: int
    def __init__(self, hops: _Optional[int] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., nodes: _Optional[_Iterable[str]] = ..., limit: _Optional[int] = ...) -> None: ...

class PluginRejection(_message.Message):
    __slots__ = ("plugin", "reasons", "resolvable")
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    RESOLVABLE_FIELD_NUMBER: _ClassVar[int]
    plugin: str
    reasons: _containers.RepeatedScalarFieldContainer[str]
    resolvable: bool
    def __init__(self, plugin: _Optional[str] = ..., reasons: _Optional[_Iterable[str]] = ..., resolvable: _Optional[bool] = ...) -> None: ...

class PluginScore(_message.Message):
    __slots__ = ("plugin", "weight", "raw", "normalized", "weighted")
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    NORMALIZED_FIELD_NUMBER: _ClassVar[int]
    WEIGHTED_FIELD_NUMBER: _ClassVar[int]
    plugin: str
    weight: int
    raw: int
    normalized: int
    weighted: int
    def __init__(self, plugin: _Optional[str] = ..., weight: _Optional[int] = ..., raw: _Optional[int] = ..., normalized: _Optional[int] = ..., weighted: _Optional[int] = ...) -> None: ...

class NodeVerdict(_message.Message):
    __slots__ = ("node", "rejections", "scores", "total")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REJECTIONS_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    node: str
    rejections: _containers.RepeatedCompositeFieldContainer[PluginRejection]
    scores: _containers.RepeatedCompositeFieldContainer[PluginScore]
    total: int
    def __init__(self, node: _Optional[str] = ..., rejections: _Optional[_Iterable[_Union[PluginRejection, _Mapping]]] = ..., scores: _Optional[_Iterable[_Union[PluginScore, _Mapping]]] = ..., total: _Optional[int] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("revision", "uid", "node", "nominated_node", "rejected", "verdicts", "nodes", "feasible", "best", "seed", "decisions", "seconds", "decision", "group")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    NOMINATED_NODE_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    FEASIBLE_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    revision: int
    uid: str
    node: str
    nominated_node: str
    rejected: str
    verdicts: _containers.RepeatedCompositeFieldContainer[NodeVerdict]
    nodes: int
    feasible: int
    best: _containers.RepeatedScalarFieldContainer[str]
    seed: int
    decisions: int
    seconds: float
    decision: PastDecision
    group: GroupExplanation
    def __init__(self, revision: _Optional[int] = ..., uid: _Optional[str] = ..., node: _Optional[str] = ..., nominated_node: _Optional[str] = ..., rejected: _Optional[str] = ..., verdicts: _Optional[_Iterable[_Union[NodeVerdict, _Mapping]]] = ..., nodes: _Optional[int] = ..., feasible: _Optional[int] = ..., best: _Optional[_Iterable[str]] = ..., seed: _Optional[int] = ..., decisions: _Optional[int] = ..., seconds: _Optional[float] = ..., decision: _Optional[_Union[PastDecision, _Mapping]] = ..., group: _Optional[_Union[GroupExplanation, _Mapping]] = ...) -> None: ...

class GroupExplanation(_message.Message):
    __slots__ = ("bound", "waiting", "min_count", "fit", "next", "reason", "domain", "held", "victims", "no_preemption")
    BOUND_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    MIN_COUNT_FIELD_NUMBER: _ClassVar[int]
    FIT_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    VICTIMS_FIELD_NUMBER: _ClassVar[int]
    NO_PREEMPTION_FIELD_NUMBER: _ClassVar[int]
    bound: int
    waiting: int
    min_count: int
    fit: int
    next: str
    reason: str
    domain: str
    held: str
    victims: _containers.RepeatedScalarFieldContainer[str]
    no_preemption: str
    def __init__(self, bound: _Optional[int] = ..., waiting: _Optional[int] = ..., min_count: _Optional[int] = ..., fit: _Optional[int] = ..., next: _Optional[str] = ..., reason: _Optional[str] = ..., domain: _Optional[str] = ..., held: _Optional[str] = ..., victims: _Optional[_Iterable[str]] = ..., no_preemption: _Optional[str] = ...) -> None: ...

class PastDecision(_message.Message):
    __slots__ = ("revision", "seed", "number", "node", "ties", "best", "rejections", "rejections_revision", "nodes", "message", "nominated_node", "victims", "seconds")
    class RejectionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    TIES_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    REJECTIONS_FIELD_NUMBER: _ClassVar[int]
    REJECTIONS_REVISION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NOMINATED_NODE_FIELD_NUMBER: _ClassVar[int]
    VICTIMS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    seed: int
    number: int
    node: str
    ties: int
    best: _containers.RepeatedCompositeFieldContainer[RankedNode]
    rejections: _containers.ScalarMap[str, int]
    rejections_revision: int
    nodes: int
    message: str
    nominated_node: str
    victims: int
    seconds: float
    def __init__(self, revision: _Optional[int] = ..., seed: _Optional[int] = ..., number: _Optional[int] = ..., node: _Optional[str] = ..., ties: _Optional[int] = ..., best: _Optional[_Iterable[_Union[RankedNode, _Mapping]]] = ..., rejections: _Optional[_Mapping[str, int]] = ..., rejections_revision: _Optional[int] = ..., nodes: _Optional[int] = ..., message: _Optional[str] = ..., nominated_node: _Optional[str] = ..., victims: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class RankedNode(_message.Message):
    __slots__ = ("node", "total")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    node: str
    total: int
    def __init__(self, node: _Optional[str] = ..., total: _Optional[int] = ...) -> None: ...

class GetPlanBasisRequest(_message.Message):
    __slots__ = ("hops",)
    HOPS_FIELD_NUMBER: _ClassVar[int]
    hops: int
    def __init__(self, hops: _Optional[int] = ...) -> None: ...

class GetPlanBasisResponse(_message.Message):
    __slots__ = ("revision", "seed", "decisions", "search_start", "rows", "configuration")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    SEARCH_START_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    seed: int
    decisions: int
    search_start: int
    rows: _containers.RepeatedScalarFieldContainer[str]
    configuration: str
    def __init__(self, revision: _Optional[int] = ..., seed: _Optional[int] = ..., decisions: _Optional[int] = ..., search_start: _Optional[int] = ..., rows: _Optional[_Iterable[str]] = ..., configuration: _Optional[str] = ...) -> None: ...

class GetAllocatedResourcesRequest(_message.Message):
    __slots__ = ("position", "resources")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    position: str
    resources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, position: _Optional[str] = ..., resources: _Optional[_Iterable[str]] = ...) -> None: ...

class GetAllocatedResourcesResponse(_message.Message):
    __slots__ = ("revision", "position", "begins_anew", "more", "nodes", "milli_cpu", "memory_bytes", "pods", "others")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BEGINS_ANEW_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    MILLI_CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    position: str
    begins_anew: bool
    more: bool
    nodes: _containers.RepeatedScalarFieldContainer[str]
    milli_cpu: _containers.RepeatedScalarFieldContainer[int]
    memory_bytes: _containers.RepeatedScalarFieldContainer[int]
    pods: _containers.RepeatedScalarFieldContainer[int]
    others: _containers.RepeatedCompositeFieldContainer[AllocatedColumn]
    def __init__(self, revision: _Optional[int] = ..., position: _Optional[str] = ..., begins_anew: _Optional[bool] = ..., more: _Optional[bool] = ..., nodes: _Optional[_Iterable[str]] = ..., milli_cpu: _Optional[_Iterable[int]] = ..., memory_bytes: _Optional[_Iterable[int]] = ..., pods: _Optional[_Iterable[int]] = ..., others: _Optional[_Iterable[_Union[AllocatedColumn, _Mapping]]] = ...) -> None: ...

class AllocatedColumn(_message.Message):
    __slots__ = ("resource", "amounts")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    AMOUNTS_FIELD_NUMBER: _ClassVar[int]
    resource: str
    amounts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, resource: _Optional[str] = ..., amounts: _Optional[_Iterable[int]] = ...) -> None: ...

class GetSchedulerStatusRequest(_message.Message):
    __slots__ = ("hops",)
    HOPS_FIELD_NUMBER: _ClassVar[int]
    hops: int
    def __init__(self, hops: _Optional[int] = ...) -> None: ...

class GetSchedulerStatusResponse(_message.Message):
    __slots__ = ("holder", "epoch", "revision", "nodes", "bound_pods", "assumed_pods", "pending_pods", "attempts", "workers", "worker_evaluations", "pids", "events", "pool", "worker_local_evaluations", "handover_seconds", "attempt_durations", "sli_durations")
    class PendingPodsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class AttemptsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class PidsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class EventsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    BOUND_PODS_FIELD_NUMBER: _ClassVar[int]
    ASSUMED_PODS_FIELD_NUMBER: _ClassVar[int]
    PENDING_PODS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    WORKER_EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    PIDS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    WORKER_LOCAL_EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    HANDOVER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_DURATIONS_FIELD_NUMBER: _ClassVar[int]
    SLI_DURATIONS_FIELD_NUMBER: _ClassVar[int]
    holder: str
    epoch: int
    revision: int
    nodes: int
    bound_pods: int
    assumed_pods: int
    pending_pods: _containers.ScalarMap[str, int]
    attempts: _containers.ScalarMap[str, int]
    workers: int
    worker_evaluations: int
    pids: _containers.ScalarMap[str, int]
    events: _containers.ScalarMap[str, int]
    pool: _containers.RepeatedCompositeFieldContainer[PoolWorker]
    worker_local_evaluations: int
    handover_seconds: float
    attempt_durations: DurationHistogram
    sli_durations: DurationHistogram
    def __init__(self, holder: _Optional[str] = ..., epoch: _Optional[int] = ..., revision: _Optional[int] = ..., nodes: _Optional[int] = ..., bound_pods: _Optional[int] = ..., assumed_pods: _Optional[int] = ..., pending_pods: _Optional[_Mapping[str, int]] = ..., attempts: _Optional[_Mapping[str, int]] = ..., workers: _Optional[int] = ..., worker_evaluations: _Optional[int] = ..., pids: _Optional[_Mapping[str, int]] = ..., events: _Optional[_Mapping[str, int]] = ..., pool: _Optional[_Iterable[_Union[PoolWorker, _Mapping]]] = ..., worker_local_evaluations: _Optional[int] = ..., handover_seconds: _Optional[float] = ..., attempt_durations: _Optional[_Union[DurationHistogram, _Mapping]] = ..., sli_durations: _Optional[_Union[DurationHistogram, _Mapping]] = ...) -> None: ...

class DurationHistogram(_message.Message):
    __slots__ = ("bounds", "counts")
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    bounds: _containers.RepeatedScalarFieldContainer[float]
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, bounds: _Optional[_Iterable[float]] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class PoolWorker(_message.Message):
    __slots__ = ("name", "host", "pid", "evaluations", "rows", "seconds", "under_way", "ray_node")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    RAY_NODE_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    pid: int
    evaluations: int
    rows: int
    seconds: float
    under_way: int
    ray_node: str
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., evaluations: _Optional[int] = ..., rows: _Optional[int] = ..., seconds: _Optional[float] = ..., under_way: _Optional[int] = ..., ray_node: _Optional[str] = ...) -> None: ...

class ListQueueRequest(_message.Message):
    __slots__ = ("hops", "namespace", "name", "limit")
    HOPS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    hops: int
    namespace: str
    name: str
    limit: int
    def __init__(self, hops: _Optional[int] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListQueueResponse(_message.Message):
    __slots__ = ("pods", "total", "counts")
    class CountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    PODS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    pods: _containers.RepeatedCompositeFieldContainer[PendingPod]
    total: int
    counts: _containers.ScalarMap[str, int]
    def __init__(self, pods: _Optional[_Iterable[_Union[PendingPod, _Mapping]]] = ..., total: _Optional[int] = ..., counts: _Optional[_Mapping[str, int]] = ...) -> None: ...

class PendingPod(_message.Message):
    __slots__ = ("position", "namespace", "name", "uid", "queue", "priority", "attempts", "backoff_left_seconds", "held_by", "would_wake", "came_by", "since_seconds", "tried_in_seconds", "gating_reasons", "nominated_node_name", "scheduler_name", "members")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_LEFT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    WOULD_WAKE_FIELD_NUMBER: _ClassVar[int]
    CAME_BY_FIELD_NUMBER: _ClassVar[int]
    SINCE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TRIED_IN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GATING_REASONS_FIELD_NUMBER: _ClassVar[int]
    NOMINATED_NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_NAME_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    position: int
    namespace: str
    name: str
    uid: str
    queue: str
    priority: int
    attempts: int
    backoff_left_seconds: float
    held_by: _containers.RepeatedScalarFieldContainer[str]
    would_wake: _containers.RepeatedScalarFieldContainer[str]
    came_by: str
    since_seconds: float
    tried_in_seconds: float
    gating_reasons: _containers.RepeatedScalarFieldContainer[str]
    nominated_node_name: str
    scheduler_name: str
    members: int
    def __init__(self, position: _Optional[int] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., queue: _Optional[str] = ..., priority: _Optional[int] = ..., attempts: _Optional[int] = ..., backoff_left_seconds: _Optional[float] = ..., held_by: _Optional[_Iterable[str]] = ..., would_wake: _Optional[_Iterable[str]] = ..., came_by: _Optional[str] = ..., since_seconds: _Optional[float] = ..., tried_in_seconds: _Optional[float] = ..., gating_reasons: _Optional[_Iterable[str]] = ..., nominated_node_name: _Optional[str] = ..., scheduler_name: _Optional[str] = ..., members: _Optional[int] = ...) -> None: ...
