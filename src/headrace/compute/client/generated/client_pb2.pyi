from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Request(_message.Message):
    __slots__ = ("number", "describe", "create_collection", "create_view", "drop", "write", "peek", "cancel_peek", "copy", "add_replica", "drop_replica", "status", "release_replica", "get_plan")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    CREATE_COLLECTION_FIELD_NUMBER: _ClassVar[int]
    CREATE_VIEW_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    PEEK_FIELD_NUMBER: _ClassVar[int]
    CANCEL_PEEK_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    ADD_REPLICA_FIELD_NUMBER: _ClassVar[int]
    DROP_REPLICA_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_REPLICA_FIELD_NUMBER: _ClassVar[int]
    GET_PLAN_FIELD_NUMBER: _ClassVar[int]
    number: int
    describe: Describe
    create_collection: CreateCollection
    create_view: CreateView
    drop: Drop
    write: Write
    peek: Peek
    cancel_peek: CancelPeek
    copy: Copy
    add_replica: AddReplica
    drop_replica: DropReplica
    status: Status
    release_replica: ReleaseReplica
    get_plan: GetPlan
    def __init__(self, number: _Optional[int] = ..., describe: _Optional[_Union[Describe, _Mapping]] = ..., create_collection: _Optional[_Union[CreateCollection, _Mapping]] = ..., create_view: _Optional[_Union[CreateView, _Mapping]] = ..., drop: _Optional[_Union[Drop, _Mapping]] = ..., write: _Optional[_Union[Write, _Mapping]] = ..., peek: _Optional[_Union[Peek, _Mapping]] = ..., cancel_peek: _Optional[_Union[CancelPeek, _Mapping]] = ..., copy: _Optional[_Union[Copy, _Mapping]] = ..., add_replica: _Optional[_Union[AddReplica, _Mapping]] = ..., drop_replica: _Optional[_Union[DropReplica, _Mapping]] = ..., status: _Optional[_Union[Status, _Mapping]] = ..., release_replica: _Optional[_Union[ReleaseReplica, _Mapping]] = ..., get_plan: _Optional[_Union[GetPlan, _Mapping]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("number", "done", "description", "rows", "condition", "problem", "plan")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    number: int
    done: Done
    description: Description
    rows: Rows
    condition: Condition
    problem: bytes
    plan: ViewPlan
    def __init__(self, number: _Optional[int] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., description: _Optional[_Union[Description, _Mapping]] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ..., condition: _Optional[_Union[Condition, _Mapping]] = ..., problem: _Optional[bytes] = ..., plan: _Optional[_Union[ViewPlan, _Mapping]] = ...) -> None: ...

class Describe(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Description(_message.Message):
    __slots__ = ("id", "view", "schema", "key", "append_only")
    ID_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    APPEND_ONLY_FIELD_NUMBER: _ClassVar[int]
    id: str
    view: bool
    schema: bytes
    key: _containers.RepeatedScalarFieldContainer[str]
    append_only: bool
    def __init__(self, id: _Optional[str] = ..., view: _Optional[bool] = ..., schema: _Optional[bytes] = ..., key: _Optional[_Iterable[str]] = ..., append_only: _Optional[bool] = ...) -> None: ...

class GetPlan(_message.Message):
    __slots__ = ("view",)
    VIEW_FIELD_NUMBER: _ClassVar[int]
    view: str
    def __init__(self, view: _Optional[str] = ...) -> None: ...

class ViewPlan(_message.Message):
    __slots__ = ("body", "places")
    BODY_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    places: bytes
    def __init__(self, body: _Optional[bytes] = ..., places: _Optional[bytes] = ...) -> None: ...

class CreateCollection(_message.Message):
    __slots__ = ("name", "schema", "append_only")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    APPEND_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    schema: bytes
    append_only: bool
    def __init__(self, name: _Optional[str] = ..., schema: _Optional[bytes] = ..., append_only: _Optional[bool] = ...) -> None: ...

class CreateView(_message.Message):
    __slots__ = ("name", "plan", "places", "key", "keep", "into", "tick_rows", "rounds", "state_bytes", "tick_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    INTO_FIELD_NUMBER: _ClassVar[int]
    TICK_ROWS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TICK_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    plan: bytes
    places: bytes
    key: _containers.RepeatedScalarFieldContainer[str]
    keep: int
    into: str
    tick_rows: int
    rounds: int
    state_bytes: int
    tick_seconds: int
    def __init__(self, name: _Optional[str] = ..., plan: _Optional[bytes] = ..., places: _Optional[bytes] = ..., key: _Optional[_Iterable[str]] = ..., keep: _Optional[int] = ..., into: _Optional[str] = ..., tick_rows: _Optional[int] = ..., rounds: _Optional[int] = ..., state_bytes: _Optional[int] = ..., tick_seconds: _Optional[int] = ...) -> None: ...

class Drop(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Write(_message.Message):
    __slots__ = ("parts", "id")
    class Part(_message.Message):
        __slots__ = ("collection", "id", "come", "go")
        COLLECTION_FIELD_NUMBER: _ClassVar[int]
        ID_FIELD_NUMBER: _ClassVar[int]
        COME_FIELD_NUMBER: _ClassVar[int]
        GO_FIELD_NUMBER: _ClassVar[int]
        collection: str
        id: str
        come: bytes
        go: bytes
        def __init__(self, collection: _Optional[str] = ..., id: _Optional[str] = ..., come: _Optional[bytes] = ..., go: _Optional[bytes] = ...) -> None: ...
    PARTS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[Write.Part]
    id: bytes
    def __init__(self, parts: _Optional[_Iterable[_Union[Write.Part, _Mapping]]] = ..., id: _Optional[bytes] = ...) -> None: ...

class Peek(_message.Message):
    __slots__ = ("view", "id", "keys", "all", "predicate", "order_by", "limit", "offset", "project", "projected", "at", "staleness", "replica", "patience")
    class Order(_message.Message):
        __slots__ = ("column", "descending")
        COLUMN_FIELD_NUMBER: _ClassVar[int]
        DESCENDING_FIELD_NUMBER: _ClassVar[int]
        column: int
        descending: bool
        def __init__(self, column: _Optional[int] = ..., descending: _Optional[bool] = ...) -> None: ...
    VIEW_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    PREDICATE_FIELD_NUMBER: _ClassVar[int]
    ORDER_BY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    PROJECTED_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    view: str
    id: str
    keys: bytes
    all: bool
    predicate: bytes
    order_by: _containers.RepeatedCompositeFieldContainer[Peek.Order]
    limit: int
    offset: int
    project: _containers.RepeatedScalarFieldContainer[int]
    projected: bool
    at: int
    staleness: int
    replica: str
    patience: int
    def __init__(self, view: _Optional[str] = ..., id: _Optional[str] = ..., keys: _Optional[bytes] = ..., all: _Optional[bool] = ..., predicate: _Optional[bytes] = ..., order_by: _Optional[_Iterable[_Union[Peek.Order, _Mapping]]] = ..., limit: _Optional[int] = ..., offset: _Optional[int] = ..., project: _Optional[_Iterable[int]] = ..., projected: _Optional[bool] = ..., at: _Optional[int] = ..., staleness: _Optional[int] = ..., replica: _Optional[str] = ..., patience: _Optional[int] = ...) -> None: ...

class CancelPeek(_message.Message):
    __slots__ = ("peek",)
    PEEK_FIELD_NUMBER: _ClassVar[int]
    peek: int
    def __init__(self, peek: _Optional[int] = ...) -> None: ...

class Copy(_message.Message):
    __slots__ = ("view", "file", "patience")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    view: str
    file: str
    patience: int
    def __init__(self, view: _Optional[str] = ..., file: _Optional[str] = ..., patience: _Optional[int] = ...) -> None: ...

class AddReplica(_message.Message):
    __slots__ = ("name", "address", "runtime", "workers")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    runtime: str
    workers: int
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., runtime: _Optional[str] = ..., workers: _Optional[int] = ...) -> None: ...

class DropReplica(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ReleaseReplica(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Done(_message.Message):
    __slots__ = ("id", "time", "rows")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    id: str
    time: int
    rows: int
    def __init__(self, id: _Optional[str] = ..., time: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("rows", "more")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    rows: bytes
    more: bool
    def __init__(self, rows: _Optional[bytes] = ..., more: _Optional[bool] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("body",)
    BODY_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    def __init__(self, body: _Optional[bytes] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("view", "as_of", "snapshot", "replica", "patience")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    view: str
    as_of: int
    snapshot: bool
    replica: str
    patience: int
    def __init__(self, view: _Optional[str] = ..., as_of: _Optional[int] = ..., snapshot: _Optional[bool] = ..., replica: _Optional[str] = ..., patience: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("description", "batch", "problem")
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    description: Description
    batch: Batch
    problem: bytes
    def __init__(self, description: _Optional[_Union[Description, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ..., problem: _Optional[bytes] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("lower", "upper", "updates", "more", "time")
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    lower: int
    upper: int
    updates: bytes
    more: bool
    time: int
    def __init__(self, lower: _Optional[int] = ..., upper: _Optional[int] = ..., updates: _Optional[bytes] = ..., more: _Optional[bool] = ..., time: _Optional[int] = ...) -> None: ...
