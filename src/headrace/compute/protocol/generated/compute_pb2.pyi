from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Origin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DATA: _ClassVar[Origin]
    PROCESS: _ClassVar[Origin]
DATA: Origin
PROCESS: Origin

class Commands(_message.Message):
    __slots__ = ("commands",)
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedCompositeFieldContainer[Command]
    def __init__(self, commands: _Optional[_Iterable[_Union[Command, _Mapping]]] = ...) -> None: ...

class Responses(_message.Message):
    __slots__ = ("responses",)
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    responses: _containers.RepeatedCompositeFieldContainer[Response]
    def __init__(self, responses: _Optional[_Iterable[_Union[Response, _Mapping]]] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("create_timely", "create_instance", "update_configuration", "initialization_complete", "create_dataflow", "schedule", "allow_writes", "allow_compaction", "peek", "cancel_peek")
    CREATE_TIMELY_FIELD_NUMBER: _ClassVar[int]
    CREATE_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    INITIALIZATION_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    CREATE_DATAFLOW_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    ALLOW_WRITES_FIELD_NUMBER: _ClassVar[int]
    ALLOW_COMPACTION_FIELD_NUMBER: _ClassVar[int]
    PEEK_FIELD_NUMBER: _ClassVar[int]
    CANCEL_PEEK_FIELD_NUMBER: _ClassVar[int]
    create_timely: CreateTimely
    create_instance: CreateInstance
    update_configuration: Parameters
    initialization_complete: InitializationComplete
    create_dataflow: Dataflow
    schedule: Schedule
    allow_writes: AllowWrites
    allow_compaction: AllowCompaction
    peek: Peek
    cancel_peek: CancelPeek
    def __init__(self, create_timely: _Optional[_Union[CreateTimely, _Mapping]] = ..., create_instance: _Optional[_Union[CreateInstance, _Mapping]] = ..., update_configuration: _Optional[_Union[Parameters, _Mapping]] = ..., initialization_complete: _Optional[_Union[InitializationComplete, _Mapping]] = ..., create_dataflow: _Optional[_Union[Dataflow, _Mapping]] = ..., schedule: _Optional[_Union[Schedule, _Mapping]] = ..., allow_writes: _Optional[_Union[AllowWrites, _Mapping]] = ..., allow_compaction: _Optional[_Union[AllowCompaction, _Mapping]] = ..., peek: _Optional[_Union[Peek, _Mapping]] = ..., cancel_peek: _Optional[_Union[CancelPeek, _Mapping]] = ...) -> None: ...

class Response(_message.Message):
    __slots__ = ("frontiers", "peek", "subscribe", "copy_to", "status")
    FRONTIERS_FIELD_NUMBER: _ClassVar[int]
    PEEK_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    COPY_TO_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    frontiers: Frontiers
    peek: PeekResponse
    subscribe: SubscribeResponse
    copy_to: CopyToResponse
    status: Status
    def __init__(self, frontiers: _Optional[_Union[Frontiers, _Mapping]] = ..., peek: _Optional[_Union[PeekResponse, _Mapping]] = ..., subscribe: _Optional[_Union[SubscribeResponse, _Mapping]] = ..., copy_to: _Optional[_Union[CopyToResponse, _Mapping]] = ..., status: _Optional[_Union[Status, _Mapping]] = ...) -> None: ...

class Frontier(_message.Message):
    __slots__ = ("time",)
    TIME_FIELD_NUMBER: _ClassVar[int]
    time: int
    def __init__(self, time: _Optional[int] = ...) -> None: ...

class Epoch(_message.Message):
    __slots__ = ("controller", "replica")
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    controller: int
    replica: int
    def __init__(self, controller: _Optional[int] = ..., replica: _Optional[int] = ...) -> None: ...

class CreateTimely(_message.Message):
    __slots__ = ("runtime", "workers", "epoch", "nonce")
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    runtime: str
    workers: int
    epoch: Epoch
    nonce: bytes
    def __init__(self, runtime: _Optional[str] = ..., workers: _Optional[int] = ..., epoch: _Optional[_Union[Epoch, _Mapping]] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class CreateInstance(_message.Message):
    __slots__ = ("collections", "expiration_offset", "introspection")
    COLLECTIONS_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_OFFSET_FIELD_NUMBER: _ClassVar[int]
    INTROSPECTION_FIELD_NUMBER: _ClassVar[int]
    collections: str
    expiration_offset: int
    introspection: int
    def __init__(self, collections: _Optional[str] = ..., expiration_offset: _Optional[int] = ..., introspection: _Optional[int] = ...) -> None: ...

class Parameters(_message.Message):
    __slots__ = ("max_result_size", "peek_stash_size", "maintenance_interval", "hydration_concurrency")
    MAX_RESULT_SIZE_FIELD_NUMBER: _ClassVar[int]
    PEEK_STASH_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCE_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    HYDRATION_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    max_result_size: int
    peek_stash_size: int
    maintenance_interval: int
    hydration_concurrency: int
    def __init__(self, max_result_size: _Optional[int] = ..., peek_stash_size: _Optional[int] = ..., maintenance_interval: _Optional[int] = ..., hydration_concurrency: _Optional[int] = ...) -> None: ...

class InitializationComplete(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Plan(_message.Message):
    __slots__ = ("body", "places")
    BODY_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    places: bytes
    def __init__(self, body: _Optional[bytes] = ..., places: _Optional[bytes] = ...) -> None: ...

class CollectionImport(_message.Message):
    __slots__ = ("source", "id", "upper")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    source: str
    id: str
    upper: Frontier
    def __init__(self, source: _Optional[str] = ..., id: _Optional[str] = ..., upper: _Optional[_Union[Frontier, _Mapping]] = ...) -> None: ...

class IndexImport(_message.Message):
    __slots__ = ("source", "id")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    source: str
    id: str
    def __init__(self, source: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class IndexExport(_message.Message):
    __slots__ = ("id", "sink", "key")
    ID_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    id: str
    sink: str
    key: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., sink: _Optional[str] = ..., key: _Optional[_Iterable[str]] = ...) -> None: ...

class SubscribeExport(_message.Message):
    __slots__ = ("id", "sink", "snapshot")
    ID_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    id: str
    sink: str
    snapshot: bool
    def __init__(self, id: _Optional[str] = ..., sink: _Optional[str] = ..., snapshot: _Optional[bool] = ...) -> None: ...

class CollectionExport(_message.Message):
    __slots__ = ("id", "sink", "collection")
    ID_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    id: str
    sink: str
    collection: str
    def __init__(self, id: _Optional[str] = ..., sink: _Optional[str] = ..., collection: _Optional[str] = ...) -> None: ...

class CopyToExport(_message.Message):
    __slots__ = ("id", "sink", "file")
    ID_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    id: str
    sink: str
    file: str
    def __init__(self, id: _Optional[str] = ..., sink: _Optional[str] = ..., file: _Optional[str] = ...) -> None: ...

class Export(_message.Message):
    __slots__ = ("index", "subscribe", "collection", "copy_to")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    COPY_TO_FIELD_NUMBER: _ClassVar[int]
    index: IndexExport
    subscribe: SubscribeExport
    collection: CollectionExport
    copy_to: CopyToExport
    def __init__(self, index: _Optional[_Union[IndexExport, _Mapping]] = ..., subscribe: _Optional[_Union[SubscribeExport, _Mapping]] = ..., collection: _Optional[_Union[CollectionExport, _Mapping]] = ..., copy_to: _Optional[_Union[CopyToExport, _Mapping]] = ...) -> None: ...

class Dataflow(_message.Message):
    __slots__ = ("plan", "collections", "indexes", "exports", "as_of", "until", "name", "limits")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    COLLECTIONS_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    EXPORTS_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    plan: Plan
    collections: _containers.RepeatedCompositeFieldContainer[CollectionImport]
    indexes: _containers.RepeatedCompositeFieldContainer[IndexImport]
    exports: _containers.RepeatedCompositeFieldContainer[Export]
    as_of: Frontier
    until: Frontier
    name: str
    limits: DataflowLimits
    def __init__(self, plan: _Optional[_Union[Plan, _Mapping]] = ..., collections: _Optional[_Iterable[_Union[CollectionImport, _Mapping]]] = ..., indexes: _Optional[_Iterable[_Union[IndexImport, _Mapping]]] = ..., exports: _Optional[_Iterable[_Union[Export, _Mapping]]] = ..., as_of: _Optional[_Union[Frontier, _Mapping]] = ..., until: _Optional[_Union[Frontier, _Mapping]] = ..., name: _Optional[str] = ..., limits: _Optional[_Union[DataflowLimits, _Mapping]] = ...) -> None: ...

class DataflowLimits(_message.Message):
    __slots__ = ("tick_rows", "rounds", "state_bytes", "tick_seconds")
    TICK_ROWS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TICK_SECONDS_FIELD_NUMBER: _ClassVar[int]
    tick_rows: int
    rounds: int
    state_bytes: int
    tick_seconds: int
    def __init__(self, tick_rows: _Optional[int] = ..., rounds: _Optional[int] = ..., state_bytes: _Optional[int] = ..., tick_seconds: _Optional[int] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class AllowWrites(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class AllowCompaction(_message.Message):
    __slots__ = ("id", "frontier")
    ID_FIELD_NUMBER: _ClassVar[int]
    FRONTIER_FIELD_NUMBER: _ClassVar[int]
    id: str
    frontier: Frontier
    def __init__(self, id: _Optional[str] = ..., frontier: _Optional[_Union[Frontier, _Mapping]] = ...) -> None: ...

class Finishing(_message.Message):
    __slots__ = ("order_by", "limit", "offset", "project")
    class Order(_message.Message):
        __slots__ = ("column", "down")
        COLUMN_FIELD_NUMBER: _ClassVar[int]
        DOWN_FIELD_NUMBER: _ClassVar[int]
        column: int
        down: bool
        def __init__(self, column: _Optional[int] = ..., down: _Optional[bool] = ...) -> None: ...
    class Project(_message.Message):
        __slots__ = ("columns",)
        COLUMNS_FIELD_NUMBER: _ClassVar[int]
        columns: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, columns: _Optional[_Iterable[int]] = ...) -> None: ...
    ORDER_BY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    order_by: _containers.RepeatedCompositeFieldContainer[Finishing.Order]
    limit: int
    offset: int
    project: Finishing.Project
    def __init__(self, order_by: _Optional[_Iterable[_Union[Finishing.Order, _Mapping]]] = ..., limit: _Optional[int] = ..., offset: _Optional[int] = ..., project: _Optional[_Union[Finishing.Project, _Mapping]] = ...) -> None: ...

class Peek(_message.Message):
    __slots__ = ("uuid", "index", "collection", "time", "keys", "predicate", "finishing")
    UUID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PREDICATE_FIELD_NUMBER: _ClassVar[int]
    FINISHING_FIELD_NUMBER: _ClassVar[int]
    uuid: bytes
    index: str
    collection: str
    time: int
    keys: bytes
    predicate: bytes
    finishing: Finishing
    def __init__(self, uuid: _Optional[bytes] = ..., index: _Optional[str] = ..., collection: _Optional[str] = ..., time: _Optional[int] = ..., keys: _Optional[bytes] = ..., predicate: _Optional[bytes] = ..., finishing: _Optional[_Union[Finishing, _Mapping]] = ...) -> None: ...

class CancelPeek(_message.Message):
    __slots__ = ("uuid",)
    UUID_FIELD_NUMBER: _ClassVar[int]
    uuid: bytes
    def __init__(self, uuid: _Optional[bytes] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("file", "line", "function", "note")
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    file: str
    line: int
    function: str
    note: str
    def __init__(self, file: _Optional[str] = ..., line: _Optional[int] = ..., function: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("code", "message", "retryable", "why", "fix", "id", "time", "facts", "where", "origin")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    FIX_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    retryable: bool
    why: str
    fix: str
    id: str
    time: int
    facts: bytes
    where: _containers.RepeatedCompositeFieldContainer[Place]
    origin: Origin
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., retryable: _Optional[bool] = ..., why: _Optional[str] = ..., fix: _Optional[str] = ..., id: _Optional[str] = ..., time: _Optional[int] = ..., facts: _Optional[bytes] = ..., where: _Optional[_Iterable[_Union[Place, _Mapping]]] = ..., origin: _Optional[_Union[Origin, str]] = ...) -> None: ...

class Frontiers(_message.Message):
    __slots__ = ("id", "write", "input", "output")
    ID_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    id: str
    write: Frontier
    input: Frontier
    output: Frontier
    def __init__(self, id: _Optional[str] = ..., write: _Optional[_Union[Frontier, _Mapping]] = ..., input: _Optional[_Union[Frontier, _Mapping]] = ..., output: _Optional[_Union[Frontier, _Mapping]] = ...) -> None: ...

class Stashed(_message.Message):
    __slots__ = ("token", "rows", "size", "inline")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    INLINE_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    rows: int
    size: int
    inline: bytes
    def __init__(self, token: _Optional[bytes] = ..., rows: _Optional[int] = ..., size: _Optional[int] = ..., inline: _Optional[bytes] = ...) -> None: ...

class Canceled(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PeekResponse(_message.Message):
    __slots__ = ("uuid", "rows", "stashed", "problem", "canceled")
    UUID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    STASHED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    CANCELED_FIELD_NUMBER: _ClassVar[int]
    uuid: bytes
    rows: bytes
    stashed: Stashed
    problem: Problem
    canceled: Canceled
    def __init__(self, uuid: _Optional[bytes] = ..., rows: _Optional[bytes] = ..., stashed: _Optional[_Union[Stashed, _Mapping]] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ..., canceled: _Optional[_Union[Canceled, _Mapping]] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("lower", "upper", "updates", "problem", "part", "parts", "time")
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    lower: Frontier
    upper: Frontier
    updates: bytes
    problem: Problem
    part: int
    parts: int
    time: int
    def __init__(self, lower: _Optional[_Union[Frontier, _Mapping]] = ..., upper: _Optional[_Union[Frontier, _Mapping]] = ..., updates: _Optional[bytes] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ..., part: _Optional[int] = ..., parts: _Optional[int] = ..., time: _Optional[int] = ...) -> None: ...

class DroppedAt(_message.Message):
    __slots__ = ("frontier",)
    FRONTIER_FIELD_NUMBER: _ClassVar[int]
    frontier: Frontier
    def __init__(self, frontier: _Optional[_Union[Frontier, _Mapping]] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("id", "batch", "dropped_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    DROPPED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    batch: Batch
    dropped_at: DroppedAt
    def __init__(self, id: _Optional[str] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ..., dropped_at: _Optional[_Union[DroppedAt, _Mapping]] = ...) -> None: ...

class Dropped(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CopyToResponse(_message.Message):
    __slots__ = ("id", "row_count", "problem", "dropped")
    ID_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    id: str
    row_count: int
    problem: Problem
    dropped: Dropped
    def __init__(self, id: _Optional[str] = ..., row_count: _Optional[int] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ..., dropped: _Optional[_Union[Dropped, _Mapping]] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("id", "text", "values")
    class Value(_message.Message):
        __slots__ = ("name", "value")
        NAME_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        name: str
        value: float
        def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    id: str
    text: str
    values: _containers.RepeatedCompositeFieldContainer[Status.Value]
    def __init__(self, id: _Optional[str] = ..., text: _Optional[str] = ..., values: _Optional[_Iterable[_Union[Status.Value, _Mapping]]] = ...) -> None: ...

class StashToken(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    def __init__(self, token: _Optional[bytes] = ...) -> None: ...

class RowsChunk(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: bytes
    def __init__(self, rows: _Optional[bytes] = ...) -> None: ...
