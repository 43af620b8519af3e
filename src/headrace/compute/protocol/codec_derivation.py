"""Conversion between frozen dataclasses and protobuf messages, derived from both once, at import.

Fields are matched by name, and the type of the dataclass's field decides:

    dataclass                the message of that field; where the message has none, the same message
    A | B, dataclasses       a oneof of that name, or the only one of a message. The member for `IndexTarget`
                             is `index_target` or `index`: a message, a field of custom form, or the only
                             field of the dataclass
    tuple[A, ...]            a repeated field, or a message that has nothing else
    tuple[A, B]              a message of two fields, in order
    A | None                 an `optional` field; unset is None. Of another field, its default is None, unless
                             a `bool` of the message, its flag, says whether it is given
    Literal                  a string out of these
    Annotated[A, Constraint] as A, checked when it is read

A sub-message that is not declared optional is required. An `optional` field of another type than `A | None`
is unset if it has its default. Values of custom form have a `FieldCodec`, chosen by their type or by the
field of the message.

Reading invalid content raises `BadMessage` with the field's name.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar, cast

from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from headrace.compute.errors import BadMessage, MessageTooLarge
from headrace.compute.protocol.commands import Constraint
from headrace.errors import HeadraceError

M = TypeVar("M", bound=Message)
T = TypeVar("T")
ValueDecode: TypeAlias = Callable[[Any], Any]
Encode: TypeAlias = Callable[[Any], Any]
FieldValues: TypeAlias = dict[str, Any]
"""Contents of a message by field, with nested dicts for sub-messages."""
Write: TypeAlias = Callable[[Any, FieldValues], None]


@dataclass(frozen=True, slots=True)
class FieldCodec:
    """Codec of a field with a custom form.

    encode:  converts a value to the content of a message field.
    decoder: returns the decoder for a field name, which errors mention; the decoder raises `BadMessage`.
    """

    encode: Encode
    decoder: Callable[[str], ValueDecode]


@dataclass(frozen=True, slots=True)
class _Value:
    """Codec of a value in one field of a message."""

    encode: Encode
    decode: ValueDecode


@dataclass(frozen=True, slots=True)
class _Part:
    """Codec of a value in some or all fields of a message; `read` takes the whole message."""

    write: Write
    read: ValueDecode


class MessageCodec(Generic[T, M]):
    """Codec of a dataclass, or a union of dataclasses, and its message."""

    def __init__(self, message: type[M], part: _Part) -> None:
        self._message = message
        self._write = part.write
        self._read = part.read

    def to_message(self, value: T) -> M:
        """Convert to a message, or raise `BadMessage` if a value does not fit its field."""
        arguments: FieldValues = {}
        try:
            self._write(value, arguments)
            return self._message(**arguments)
        except HeadraceError:
            raise
        except (ValueError, TypeError) as error:
            raise bad_message(type(value).__name__, str(error)) from error

    def from_message(self, message: M) -> T:
        """Convert from a message, or raise `BadMessage`, or `MessageTooLarge` for too many rows."""
        return self._read(message)

    @property
    def parse(self) -> Callable[[bytes], M]:
        """Parser of the bytes of a message, without conversion, for gRPC."""
        return self._message.FromString

    @property
    def serialize(self) -> Callable[[M], bytes]:
        """Serialiser of a message, for gRPC."""
        return self._message.SerializeToString

    def to_bytes(self, value: T) -> bytes:
        """Serialise the message of a value."""
        return self.to_message(value).SerializeToString()

    def from_bytes(self, data: bytes) -> T:
        """Parse and convert a message."""
        return self._read(parse(self._message, data))


class MessageCodecs:
    """Derivation of codecs.

    by_type, by_field: codecs of custom form, by the type of the dataclass's field, or by
        `Message.field`, which takes precedence.
    whole: constraints on dataclasses.
    flags: names of flags by `Message.field`, each with its value if the field is given.
    """

    def __init__(
        self,
        by_type: Mapping[Any, FieldCodec],
        by_field: Mapping[str, FieldCodec] = MappingProxyType({}),
        whole: Mapping[type[Any], Constraint] = MappingProxyType({}),
        flags: Mapping[str, tuple[str, bool]] = MappingProxyType({}),
    ) -> None:
        self._by_type = by_type
        self._by_field = by_field
        self._whole = whole
        self._flags = flags

    def derive(self, wanted: Any, message: type[M]) -> MessageCodec[Any, M]:
        """Derive the codec of a dataclass, or a union of dataclasses."""
        return MessageCodec(message, self._body(wanted, message.DESCRIPTOR))

    def _body(self, wanted: Any, message: Any) -> _Part:
        if dataclasses.is_dataclass(wanted):
            return self._dataclass(cast("type[Any]", wanted), message)
        (oneof,) = message.oneofs
        return self._oneof(wanted, oneof)

    def _dataclass(self, wanted: type[Any], message: Any) -> _Part:
        values: list[tuple[str, Encode]] = []
        parts: list[tuple[str, Write]] = []
        reads: list[ValueDecode] = []
        for name, hint, default in _fields(wanted):
            flag = self._flags.get(f"{_name(message)}.{name}")
            if flag is not None:
                part = self._flagged(hint, message.fields_by_name[name], *flag)
                parts.append((name, part.write))
                reads.append(part.read)
                continue
            if name in message.fields_by_name:
                field = self._field(hint, default, message.fields_by_name[name])
                values.append((name, field.encode))
                reads.append(field.decode)
                continue
            oneof = message.oneofs_by_name.get(name)
            part = self._body(hint, message) if oneof is None else self._oneof(hint, oneof)
            parts.append((name, part.write))
            reads.append(part.read)
        plain = [name for name, encode in values if encode is _same]
        coded = [(name, encode) for name, encode in values if encode is not _same]

        def write_all(value: Any, arguments: FieldValues) -> None:
            for name in plain:
                arguments[name] = getattr(value, name)
            for name, encode in coded:
                arguments[name] = encode(getattr(value, name))
            for name, write in parts:
                write(getattr(value, name), arguments)

        required = [field.name for field in message.fields if _is_required(field)]
        constraint = self._whole.get(wanted)

        def read_all(found: Any) -> Any:
            for name in required:
                if not found.HasField(name):
                    raise bad_message(_name(message.fields_by_name[name]), "It is not set.")
            value = wanted(*[read(found) for read in reads])
            if constraint is not None and not constraint.holds(value):
                raise bad_message(_name(message), constraint.why)
            return value

        return _Part(write_all, read_all)

    def _flagged(self, hint: Any, field: Any, flag: str, given: bool) -> _Part:
        """Derive the codec of an `A | None` in a field whose flag is `given` if it has a value."""
        name, get, get_flag = field.name, attrgetter(field.name), attrgetter(flag)
        value = self._value(_not_none(hint), field)
        encode, decode = value.encode, value.decode

        def write(value: Any, arguments: FieldValues) -> None:
            arguments[flag] = given if value is not None else not given
            if value is not None:
                arguments[name] = encode(value)

        return _Part(write, lambda found: decode(get(found)) if get_flag(found) is given else None)

    def _oneof(self, union: Any, oneof: Any) -> _Part:
        called = f"{_name(oneof.containing_type)}.{oneof.name}"
        encodes: dict[type[Any], tuple[str, Encode]] = {}
        decodes: dict[str, ValueDecode] = {}
        for wanted in typing.get_args(union):
            # The longest: `DropReplica` is no `drop` if there is a `drop_replica`.
            named = (field for field in oneof.fields if _stands_for(field, wanted))
            member = max(named, key=lambda field: len(field.name))
            value = self._member(wanted, member)
            encodes[wanted] = member.name, value.encode
            decodes[member.name] = value.decode

        def write(value: Any, arguments: FieldValues) -> None:
            if type(value) not in encodes:
                raise TypeError(f"{type(value).__name__} is no {called}")
            name, encode = encodes[type(value)]
            arguments[name] = encode(value)

        def read(found: Any) -> Any:
            name = found.WhichOneof(oneof.name)
            if name is None:
                raise bad_message(called, "Nothing of it is set.")
            return decodes[name](getattr(found, name))

        return _Part(write, read)

    def _member(self, wanted: type[Any], member: Any) -> _Value:
        """Derive the codec of a dataclass in a oneof: a message, of custom form, or its only field."""
        if member.message_type is not None or self._custom(wanted, member) is not None:
            return self._value(wanted, member)
        ((name, hint, _),) = _fields(wanted)
        value, get = self._value(hint, member), attrgetter(name)
        encode, decode = value.encode, value.decode
        return _Value(lambda whole: encode(get(whole)), lambda found: wanted(decode(found)))

    def _field(self, hint: Any, default: object, field: Any) -> _Value:
        """Derive the codec of a field, like `_value`, but decoding from the message."""
        name, get = field.name, attrgetter(field.name)
        if not _is_optional(field):
            if types.NoneType in typing.get_args(hint):
                return _none_as_default(self._value(_not_none(hint), field), field)
            value = self._value(hint, field)
            decode = value.decode
            return _Value(value.encode, get if decode is _same else lambda found: decode(get(found)))
        if types.NoneType in typing.get_args(hint):
            hint, default = _not_none(hint), None
        value = self._value(hint, field)
        encode, decode = value.encode, value.decode

        def encode_set(value: Any) -> Any:
            return None if value is None or value == default else encode(value)

        def read(found: Any) -> Any:
            return decode(get(found)) if found.HasField(name) else default

        # Protobuf takes None for what is not set.
        return _Value(_same if encode is _same and default is None else encode_set, read)

    def _custom(self, hint: Any, field: Any) -> FieldCodec | None:
        return self._by_field.get(_name(field)) or self._by_type.get(hint)

    def _value(self, hint: Any, field: Any) -> _Value:
        name = _name(field)
        own = self._custom(hint, field)
        if own is not None:
            return _Value(own.encode, own.decoder(name))
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin is Annotated:
            return _checked(self._value(args[0], field), args[1], name)
        if origin is Literal:
            known = Constraint(frozenset(args).__contains__, f"It is none of {', '.join(sorted(args))}.")
            return _checked(_PLAIN, known, name)
        if origin is tuple and args[-1] is not ...:
            return _record([each.name for each in field.message_type.fields])
        if origin is tuple and field.is_repeated:
            return _each(self._value(args[0], field))
        if origin is tuple:
            (repeated,) = field.message_type.fields
            return _wrapped(self._value(hint, repeated), repeated.name)
        if field.message_type is None:
            return _PLAIN
        return self._message(hint, field.message_type)

    def _message(self, wanted: Any, message: Any) -> _Value:
        body = self._body(wanted, message)
        write, read = body.write, body.read

        def encode(value: Any) -> FieldValues:
            arguments: FieldValues = {}
            write(value, arguments)
            return arguments

        try:
            empty = read(GetMessageClass(message)())
        except BadMessage:
            return _Value(encode, read)
        # Frozen, so one is enough; most peeks have an empty finishing.
        return _Value(encode, lambda found: read(found) if found.ByteSize() else empty)


def _same(value: Any) -> Any:
    return value


_PLAIN = _Value(_same, _same)


def _checked(value: _Value, constraint: Constraint, name: str) -> _Value:
    holds, decode = constraint.holds, value.decode

    def decode_checked(found: Any) -> Any:
        decoded = found if decode is _same else decode(found)
        if not holds(decoded):
            raise bad_message(name, constraint.why)
        return decoded

    return _Value(value.encode, decode_checked)


def _none_as_default(value: _Value, field: Any) -> _Value:
    """Create the codec of an `A | None` in a field that cannot be unset, reading from the message."""
    encode, decode, get, default = value.encode, value.decode, attrgetter(field.name), field.default_value

    def read(found: Any) -> Any:
        content = get(found)
        return None if content == default else decode(content)

    return _Value(lambda value: default if value is None else encode(value), read)


def _each(value: _Value) -> _Value:
    encode, decode = value.encode, value.decode
    if value is _PLAIN:
        return _Value(_same, tuple)
    return _Value(lambda values: list(map(encode, values)), lambda found: tuple(map(decode, found)))


def _record(names: Sequence[str]) -> _Value:
    """Create the codec of a tuple as a message, by position."""

    def encode(values: Sequence[Any]) -> FieldValues:
        return dict(zip(names, values, strict=True))

    return _Value(encode, attrgetter(*names))


def _wrapped(value: _Value, name: str) -> _Value:
    """Create the codec of a value as a message with one field."""
    encode, decode, get = value.encode, value.decode, attrgetter(name)
    return _Value(lambda inner: {name: encode(inner)}, lambda found: decode(get(found)))


def _not_none(hint: Any) -> Any:
    """Return the type A of `A | None`."""
    found, *others = (arg for arg in typing.get_args(hint) if arg is not types.NoneType)
    for other in others:
        found = found | other
    return found


def _fields(wanted: type[Any]) -> list[tuple[str, Any, object]]:
    """Return a dataclass's fields: names, types, defaults."""
    hints = typing.get_type_hints(wanted, include_extras=True)
    return [(field.name, hints[field.name], field.default) for field in dataclasses.fields(wanted)]


def _is_optional(field: Any) -> bool:
    return field.containing_oneof is not None and field.containing_oneof.name == f"_{field.name}"


def _is_required(field: Any) -> bool:
    return field.message_type is not None and field.has_presence and field.containing_oneof is None


def _stands_for(member: Any, wanted: type[Any]) -> bool:
    snake = re.sub(r"(?<=.)(?=[A-Z])", "_", wanted.__name__).lower()
    return snake == member.name or snake.startswith(f"{member.name}_")


def _name(described: Any) -> str:
    """Format the name of a message or field for errors, such as `Peek.keys`."""
    return described.full_name.removeprefix(f"{described.file.package}.")


def parse(of: type[M], data: bytes, limit: int | None = None) -> M:
    """Parse a protobuf message. Raises `BadMessage`, or `MessageTooLarge` above `limit` bytes."""
    check_size(len(data), limit, of.__name__)
    try:
        return of.FromString(data)
    except DecodeError as error:
        raise bad_message(of.__name__, f"The bytes are no message of that kind: {error}") from error


def check_size(size: int, limit: int | None, name: str) -> None:
    """Raise `MessageTooLarge` above the limit, if there is one."""
    if limit is not None and size > limit:
        raise MessageTooLarge(
            f"a {name} of {size:,} bytes is too large",
            why=f"The limit is {limit:,} bytes.",
            fix="send less at a time, or raise the limit on both sides",
            size=size,
            limit=limit,
        )


def bad_message(field: str, why: str) -> BadMessage:
    return BadMessage(
        f"{field} is not what it must be",
        why=why,
        fix="use the same version of Headrace on both sides",
        field=field,
    )
