import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LogsRequest(_message.Message):
    __slots__ = ("namespace", "pod", "container", "follow", "previous", "tail_lines", "since_seconds", "since_time", "timestamps", "limit_bytes", "resume")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    TAIL_LINES_FIELD_NUMBER: _ClassVar[int]
    SINCE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SINCE_TIME_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    pod: str
    container: str
    follow: bool
    previous: bool
    tail_lines: int
    since_seconds: float
    since_time: _timestamp_pb2.Timestamp
    timestamps: bool
    limit_bytes: int
    resume: LogPosition
    def __init__(self, namespace: _Optional[str] = ..., pod: _Optional[str] = ..., container: _Optional[str] = ..., follow: _Optional[bool] = ..., previous: _Optional[bool] = ..., tail_lines: _Optional[int] = ..., since_seconds: _Optional[float] = ..., since_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., timestamps: _Optional[bool] = ..., limit_bytes: _Optional[int] = ..., resume: _Optional[_Union[LogPosition, _Mapping]] = ...) -> None: ...

class LogsResponse(_message.Message):
    __slots__ = ("data", "position", "lost", "end")
    DATA_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    position: LogPosition
    lost: bool
    end: bool
    def __init__(self, data: _Optional[bytes] = ..., position: _Optional[_Union[LogPosition, _Mapping]] = ..., lost: _Optional[bool] = ..., end: _Optional[bool] = ...) -> None: ...

class LogPosition(_message.Message):
    __slots__ = ("uid", "attempt", "file", "begin", "offset", "in_line", "since")
    UID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    IN_LINE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    uid: str
    attempt: int
    file: int
    begin: bytes
    offset: int
    in_line: bool
    since: bytes
    def __init__(self, uid: _Optional[str] = ..., attempt: _Optional[int] = ..., file: _Optional[int] = ..., begin: _Optional[bytes] = ..., offset: _Optional[int] = ..., in_line: _Optional[bool] = ..., since: _Optional[bytes] = ...) -> None: ...

class StreamChallenge(_message.Message):
    __slots__ = ("nonce", "node", "uid", "container")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    node: str
    uid: str
    container: str
    def __init__(self, nonce: _Optional[bytes] = ..., node: _Optional[str] = ..., uid: _Optional[str] = ..., container: _Optional[str] = ...) -> None: ...

class ExecRequest(_message.Message):
    __slots__ = ("start", "stdin", "resize", "end_of_input", "proof")
    START_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    RESIZE_FIELD_NUMBER: _ClassVar[int]
    END_OF_INPUT_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    start: ExecStart
    stdin: bytes
    resize: TerminalSize
    end_of_input: bool
    proof: bytes
    def __init__(self, start: _Optional[_Union[ExecStart, _Mapping]] = ..., stdin: _Optional[bytes] = ..., resize: _Optional[_Union[TerminalSize, _Mapping]] = ..., end_of_input: _Optional[bool] = ..., proof: _Optional[bytes] = ...) -> None: ...

class ExecStart(_message.Message):
    __slots__ = ("namespace", "pod", "container", "command", "stdin", "tty", "size", "token", "proves")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    TTY_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROVES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    pod: str
    container: str
    command: _containers.RepeatedScalarFieldContainer[str]
    stdin: bool
    tty: bool
    size: TerminalSize
    token: str
    proves: bool
    def __init__(self, namespace: _Optional[str] = ..., pod: _Optional[str] = ..., container: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., stdin: _Optional[bool] = ..., tty: _Optional[bool] = ..., size: _Optional[_Union[TerminalSize, _Mapping]] = ..., token: _Optional[str] = ..., proves: _Optional[bool] = ...) -> None: ...

class TerminalSize(_message.Message):
    __slots__ = ("columns", "rows")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    columns: int
    rows: int
    def __init__(self, columns: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class ExecResponse(_message.Message):
    __slots__ = ("started", "stdout", "stderr", "exit", "challenge")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    started: bool
    stdout: bytes
    stderr: bytes
    exit: ExecExit
    challenge: StreamChallenge
    def __init__(self, started: _Optional[bool] = ..., stdout: _Optional[bytes] = ..., stderr: _Optional[bytes] = ..., exit: _Optional[_Union[ExecExit, _Mapping]] = ..., challenge: _Optional[_Union[StreamChallenge, _Mapping]] = ...) -> None: ...

class ExecExit(_message.Message):
    __slots__ = ("code", "signal")
    CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    code: int
    signal: int
    def __init__(self, code: _Optional[int] = ..., signal: _Optional[int] = ...) -> None: ...

class PortForwardRequest(_message.Message):
    __slots__ = ("start", "data", "end", "proof")
    START_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    start: PortForwardStart
    data: bytes
    end: bool
    proof: bytes
    def __init__(self, start: _Optional[_Union[PortForwardStart, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[bool] = ..., proof: _Optional[bytes] = ...) -> None: ...

class PortForwardStart(_message.Message):
    __slots__ = ("namespace", "pod", "port", "token", "proves")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROVES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    pod: str
    port: int
    token: str
    proves: bool
    def __init__(self, namespace: _Optional[str] = ..., pod: _Optional[str] = ..., port: _Optional[int] = ..., token: _Optional[str] = ..., proves: _Optional[bool] = ...) -> None: ...

class PortForwardResponse(_message.Message):
    __slots__ = ("connected", "data", "end", "challenge")
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    connected: bool
    data: bytes
    end: bool
    challenge: StreamChallenge
    def __init__(self, connected: _Optional[bool] = ..., data: _Optional[bytes] = ..., end: _Optional[bool] = ..., challenge: _Optional[_Union[StreamChallenge, _Mapping]] = ...) -> None: ...

class UsageRequest(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    def __init__(self, node: _Optional[str] = ...) -> None: ...

class UsageResponse(_message.Message):
    __slots__ = ("nodes", "silent")
    NODES_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeUsage]
    silent: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeUsage, _Mapping]]] = ..., silent: _Optional[_Iterable[str]] = ...) -> None: ...

class NodeUsage(_message.Message):
    __slots__ = ("node", "cpu_millis", "memory_bytes", "window_seconds", "pods")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CPU_MILLIS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    node: str
    cpu_millis: int
    memory_bytes: int
    window_seconds: float
    pods: _containers.RepeatedCompositeFieldContainer[PodUsage]
    def __init__(self, node: _Optional[str] = ..., cpu_millis: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., window_seconds: _Optional[float] = ..., pods: _Optional[_Iterable[_Union[PodUsage, _Mapping]]] = ...) -> None: ...

class PodUsage(_message.Message):
    __slots__ = ("namespace", "name", "uid", "containers")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    uid: str
    containers: _containers.RepeatedCompositeFieldContainer[ContainerUsage]
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., containers: _Optional[_Iterable[_Union[ContainerUsage, _Mapping]]] = ...) -> None: ...

class ContainerUsage(_message.Message):
    __slots__ = ("name", "cpu_millis", "memory_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CPU_MILLIS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    cpu_millis: int
    memory_bytes: int
    def __init__(self, name: _Optional[str] = ..., cpu_millis: _Optional[int] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class AttendRequest(_message.Message):
    __slots__ = ("node", "agent_id", "incarnation")
    NODE_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    node: str
    agent_id: str
    incarnation: int
    def __init__(self, node: _Optional[str] = ..., agent_id: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class StreamOffer(_message.Message):
    __slots__ = ("session", "hung_up")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HUNG_UP_FIELD_NUMBER: _ClassVar[int]
    session: str
    hung_up: str
    def __init__(self, session: _Optional[str] = ..., hung_up: _Optional[str] = ...) -> None: ...

class AgentFrame(_message.Message):
    __slots__ = ("session", "logs", "exec", "port_forward", "usage", "end")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    EXEC_FIELD_NUMBER: _ClassVar[int]
    PORT_FORWARD_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    session: str
    logs: LogsResponse
    exec: ExecResponse
    port_forward: PortForwardResponse
    usage: NodeUsage
    end: StreamEnd
    def __init__(self, session: _Optional[str] = ..., logs: _Optional[_Union[LogsResponse, _Mapping]] = ..., exec: _Optional[_Union[ExecResponse, _Mapping]] = ..., port_forward: _Optional[_Union[PortForwardResponse, _Mapping]] = ..., usage: _Optional[_Union[NodeUsage, _Mapping]] = ..., end: _Optional[_Union[StreamEnd, _Mapping]] = ...) -> None: ...

class ReplicaFrame(_message.Message):
    __slots__ = ("uid", "logs", "exec", "port_forward", "usage")
    UID_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    EXEC_FIELD_NUMBER: _ClassVar[int]
    PORT_FORWARD_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    uid: str
    logs: LogsRequest
    exec: ExecRequest
    port_forward: PortForwardRequest
    usage: UsageRequest
    def __init__(self, uid: _Optional[str] = ..., logs: _Optional[_Union[LogsRequest, _Mapping]] = ..., exec: _Optional[_Union[ExecRequest, _Mapping]] = ..., port_forward: _Optional[_Union[PortForwardRequest, _Mapping]] = ..., usage: _Optional[_Union[UsageRequest, _Mapping]] = ...) -> None: ...

class StreamEnd(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
