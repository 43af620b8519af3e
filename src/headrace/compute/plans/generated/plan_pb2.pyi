from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Body(_message.Message):
    __slots__ = ("version", "given_ticks", "nodes", "functions")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    GIVEN_TICKS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONS_FIELD_NUMBER: _ClassVar[int]
    version: int
    given_ticks: bool
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    functions: bytes
    def __init__(self, version: _Optional[int] = ..., given_ticks: _Optional[bool] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., functions: _Optional[bytes] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("operator", "inputs", "schema")
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    operator: Record
    inputs: _containers.RepeatedScalarFieldContainer[int]
    schema: Schema
    def __init__(self, operator: _Optional[_Union[Record, _Mapping]] = ..., inputs: _Optional[_Iterable[int]] = ..., schema: _Optional[_Union[Schema, _Mapping]] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("name", "members")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    members: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, name: _Optional[str] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: Value
    def __init__(self, name: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("nothing", "truth", "integer", "large_integer", "number", "text", "octets", "decimal", "date", "moment", "span", "sequence", "set", "record", "choice", "expr", "type", "schema", "known_function", "function")
    NOTHING_FIELD_NUMBER: _ClassVar[int]
    TRUTH_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    LARGE_INTEGER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    OCTETS_FIELD_NUMBER: _ClassVar[int]
    DECIMAL_FIELD_NUMBER: _ClassVar[int]
    DATE_FIELD_NUMBER: _ClassVar[int]
    MOMENT_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    EXPR_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FUNCTION_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    nothing: Nothing
    truth: bool
    integer: int
    large_integer: bytes
    number: float
    text: str
    octets: bytes
    decimal: str
    date: str
    moment: str
    span: Span
    sequence: Values
    set: Values
    record: Record
    choice: Choice
    expr: Expr
    type: Type
    schema: Schema
    known_function: str
    function: int
    def __init__(self, nothing: _Optional[_Union[Nothing, _Mapping]] = ..., truth: _Optional[bool] = ..., integer: _Optional[int] = ..., large_integer: _Optional[bytes] = ..., number: _Optional[float] = ..., text: _Optional[str] = ..., octets: _Optional[bytes] = ..., decimal: _Optional[str] = ..., date: _Optional[str] = ..., moment: _Optional[str] = ..., span: _Optional[_Union[Span, _Mapping]] = ..., sequence: _Optional[_Union[Values, _Mapping]] = ..., set: _Optional[_Union[Values, _Mapping]] = ..., record: _Optional[_Union[Record, _Mapping]] = ..., choice: _Optional[_Union[Choice, _Mapping]] = ..., expr: _Optional[_Union[Expr, _Mapping]] = ..., type: _Optional[_Union[Type, _Mapping]] = ..., schema: _Optional[_Union[Schema, _Mapping]] = ..., known_function: _Optional[str] = ..., function: _Optional[int] = ...) -> None: ...

class Nothing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Span(_message.Message):
    __slots__ = ("days", "microseconds")
    DAYS_FIELD_NUMBER: _ClassVar[int]
    MICROSECONDS_FIELD_NUMBER: _ClassVar[int]
    days: int
    microseconds: int
    def __init__(self, days: _Optional[int] = ..., microseconds: _Optional[int] = ...) -> None: ...

class Values(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, items: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class Choice(_message.Message):
    __slots__ = ("name", "member")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    name: str
    member: str
    def __init__(self, name: _Optional[str] = ..., member: _Optional[str] = ...) -> None: ...

class Expr(_message.Message):
    __slots__ = ("terms",)
    TERMS_FIELD_NUMBER: _ClassVar[int]
    terms: _containers.RepeatedCompositeFieldContainer[Term]
    def __init__(self, terms: _Optional[_Iterable[_Union[Term, _Mapping]]] = ...) -> None: ...

class Term(_message.Message):
    __slots__ = ("column", "literal", "call")
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    LITERAL_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    column: ColumnTerm
    literal: LiteralTerm
    call: CallTerm
    def __init__(self, column: _Optional[_Union[ColumnTerm, _Mapping]] = ..., literal: _Optional[_Union[LiteralTerm, _Mapping]] = ..., call: _Optional[_Union[CallTerm, _Mapping]] = ...) -> None: ...

class ColumnTerm(_message.Message):
    __slots__ = ("name", "side")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    name: str
    side: str
    def __init__(self, name: _Optional[str] = ..., side: _Optional[str] = ...) -> None: ...

class LiteralTerm(_message.Message):
    __slots__ = ("value", "type")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    value: Value
    type: Type
    def __init__(self, value: _Optional[_Union[Value, _Mapping]] = ..., type: _Optional[_Union[Type, _Mapping]] = ...) -> None: ...

class CallTerm(_message.Message):
    __slots__ = ("function", "arguments", "options")
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    function: str
    arguments: int
    options: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, function: _Optional[str] = ..., arguments: _Optional[int] = ..., options: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class Type(_message.Message):
    __slots__ = ("plain", "decimal", "struct", "list", "map")
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    DECIMAL_FIELD_NUMBER: _ClassVar[int]
    STRUCT_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    plain: str
    decimal: DecimalType
    struct: StructType
    list: ListType
    map: MapType
    def __init__(self, plain: _Optional[str] = ..., decimal: _Optional[_Union[DecimalType, _Mapping]] = ..., struct: _Optional[_Union[StructType, _Mapping]] = ..., list: _Optional[_Union[ListType, _Mapping]] = ..., map: _Optional[_Union[MapType, _Mapping]] = ...) -> None: ...

class DecimalType(_message.Message):
    __slots__ = ("precision", "scale")
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    precision: int
    scale: int
    def __init__(self, precision: _Optional[int] = ..., scale: _Optional[int] = ...) -> None: ...

class StructType(_message.Message):
    __slots__ = ("fields", "row_class")
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    ROW_CLASS_FIELD_NUMBER: _ClassVar[int]
    fields: _containers.RepeatedCompositeFieldContainer[Field]
    row_class: int
    def __init__(self, fields: _Optional[_Iterable[_Union[Field, _Mapping]]] = ..., row_class: _Optional[int] = ...) -> None: ...

class ListType(_message.Message):
    __slots__ = ("element", "nullable")
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    NULLABLE_FIELD_NUMBER: _ClassVar[int]
    element: Type
    nullable: bool
    def __init__(self, element: _Optional[_Union[Type, _Mapping]] = ..., nullable: _Optional[bool] = ...) -> None: ...

class MapType(_message.Message):
    __slots__ = ("key", "value", "nullable")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    NULLABLE_FIELD_NUMBER: _ClassVar[int]
    key: Type
    value: Type
    nullable: bool
    def __init__(self, key: _Optional[_Union[Type, _Mapping]] = ..., value: _Optional[_Union[Type, _Mapping]] = ..., nullable: _Optional[bool] = ...) -> None: ...

class Field(_message.Message):
    __slots__ = ("name", "type", "nullable")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NULLABLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: Type
    nullable: bool
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[Type, _Mapping]] = ..., nullable: _Optional[bool] = ...) -> None: ...

class Schema(_message.Message):
    __slots__ = ("fields", "scalar", "row_class")
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    SCALAR_FIELD_NUMBER: _ClassVar[int]
    ROW_CLASS_FIELD_NUMBER: _ClassVar[int]
    fields: _containers.RepeatedCompositeFieldContainer[Field]
    scalar: bool
    row_class: int
    def __init__(self, fields: _Optional[_Iterable[_Union[Field, _Mapping]]] = ..., scalar: _Optional[bool] = ..., row_class: _Optional[int] = ...) -> None: ...

class Places(_message.Message):
    __slots__ = ("flow", "files", "places")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    flow: str
    files: _containers.RepeatedScalarFieldContainer[str]
    places: _containers.RepeatedCompositeFieldContainer[Place]
    def __init__(self, flow: _Optional[str] = ..., files: _Optional[_Iterable[str]] = ..., places: _Optional[_Iterable[_Union[Place, _Mapping]]] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("file", "line", "function", "name")
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    file: int
    line: int
    function: str
    name: str
    def __init__(self, file: _Optional[int] = ..., line: _Optional[int] = ..., function: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...
