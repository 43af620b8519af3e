"""Whatever arrives at its socket, a replica is there afterwards and serves a good controller.

The replica is a real one, with an index that the good controller reads each time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import grpc
import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.compute.channels import FETCH, STREAM
from headrace.compute.frontier import END, Frontier
from headrace.compute.plans import INPUT, OUTPUT
from headrace.compute.protocol import serialization
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    CollectionExport,
    CollectionImport,
    CollectionTarget,
    Command,
    CopyToExport,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Finishing,
    IndexExport,
    IndexImport,
    IndexTarget,
    InitializationComplete,
    Peek,
    PlanBytes,
    Schedule,
    SubscribeExport,
)
from headrace.compute.protocol.generated import compute_pb2 as pb
from tests.compute.protocol import messages
from tests.compute.transport.attacked import PEEK, VIEW, Attacked
from tests.compute.transport.fakes import PATIENCE

_grpc: Any = grpc
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    attacked = Attacked(tmp_path_factory.mktemp("replica"))
    attacked.check_alive()
    yield attacked
    attacked.check_alive()
    attacked.close()


# --- on the socket -----------------------------------------------------------------

SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
RAW: dict[str, list[bytes]] = {
    "nothing": [],
    "a line of HTTP/1": [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"],
    "a beginning of TLS": [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500],
    "half a preface": [PREFACE[:10]],
    "a preface and nothing": [PREFACE, SETTINGS],
    "a frame that claims 16 MB": [PREFACE, SETTINGS, b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"],
    "headers that cannot be unpacked": [
        PREFACE,
        SETTINGS,
        b"\x00\x00\x05\x01\x04\x00\x00\x00\x01\xff\xff\xff\xff\xff",
    ],
    "data on a stream that is not": [PREFACE, SETTINGS, b"\x00\x00\x04\x00\x01\x00\x00\x00\x07abcd"],
    "a thousand pings": [PREFACE, SETTINGS, b"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678" * 1000],
    "a thousand resets": [PREFACE, SETTINGS, b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08" * 1000],
    "a megabyte of zeros": [b"\x00" * 1_000_000],
}


@pytest.mark.parametrize("pieces", RAW.values(), ids=RAW)
def test_bytes_that_are_no_http2_do_no_harm(replica: Attacked, pieces: list[bytes]) -> None:
    replica.send_raw(pieces)
    replica.check_alive()


@settings(max_examples=20)
@given(st.lists(st.binary(max_size=100), max_size=4), st.booleans())
def test_random_bytes_on_the_socket_do_no_harm(replica: Attacked, pieces: list[bytes], preface: bool) -> None:
    replica.send_raw([PREFACE, SETTINGS, *pieces] if preface else pieces)
    replica.check_alive()


# --- in messages -------------------------------------------------------------------


def _nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\xc0"


def _nested_sets(depth: int) -> bytes:
    value = b"\x90"
    for _ in range(depth):
        value = msgpack.packb(msgpack.ExtType(5, value))
    return value


def _command(**kind: Any) -> bytes:
    return pb.Commands(commands=[pb.Command(**kind)]).SerializeToString()


def _peek(keys: bytes) -> bytes:
    return _command(peek=pb.Peek(uuid=b"u" * 16, index="u1", time=1, keys=keys, finishing=pb.Finishing()))


def _view(plan: bytes, places: bytes = b"") -> bytes:
    (message,) = serialization.commands_to_messages([CreateDataflow(VIEW)], 10**6)
    commands = pb.Commands.FromString(message)
    commands.commands[0].create_dataflow.plan.CopyFrom(pb.Plan(body=plan, places=places))
    return commands.SerializeToString()


HOSTILE: dict[str, bytes] = {
    "no bytes": b"",
    "no protobuf": b"\xff" * 50,
    "a length beyond the end": b"\x0a\xff\xff\xff\xff\x0f",
    "a command of no kind": _command(),
    "groups nested deeply": b"\x0b" * 100_000,
    "unknown fields nested deeply": b"\x0a\x7f" * 60,
    "keys nested a little": _peek(b"\x91" + _nested(500)),
    "keys nested deeply": _peek(b"\x91" + _nested(5_000)),
    "keys nested for a megabyte": _peek(b"\x91" + _nested(1_000_000)),
    "sets nested deeply": _peek(b"\x91\x91" + _nested_sets(3_000)),
    "keys that claim four billion rows": _peek(b"\xdd\xff\xff\xff\xff"),
    "a row that claims four billion columns": _peek(b"\x91\xdd\xff\xff\xff\xff"),
    "text that is none": _peek(b"\x91\x91\xa2\xff\xfe"),
    "a decimal of a billion digits": _peek(b"\x91\x91" + msgpack.packb(msgpack.ExtType(2, b"1e999999999"))),
    "a day that never was": _peek(b"\x91\x91" + msgpack.packb(msgpack.ExtType(3, b"\xff" * 8))),
    "a moment that never was": _peek(b"\x91\x91" + b"\xc7\x0c\xff" + b"\xff" * 12),
    "a plan of zeros": _view(b"\x00" * 1000),
    "a plan of rubbish": _view(random.Random(1).randbytes(5_000)),
    "a plan nested deeply": _view(b"\x0a\x7f" * 5_000),
    "places of rubbish": _view(VIEW.plan.body, random.Random(2).randbytes(500)),
    "a thousand kinds": b"".join(bytes([n % 256, n // 256]) for n in range(1_000)),
    "a thousand commands of one name": pb.Commands(
        commands=[pb.Command(schedule=pb.Schedule(id="u1"))] * 1_000
    ).SerializeToString(),
    "an id of a megabyte": _command(schedule=pb.Schedule(id="u" * 1_000_000)),
    "a predicate of rubbish": _command(
        peek=pb.Peek(
            uuid=b"u" * 16, collection="s1", time=1, predicate=b"\xfe" * 99, finishing=pb.Finishing()
        )
    ),
    "columns that are not there": _command(
        peek=pb.Peek(
            uuid=b"u" * 16,
            collection="s1",
            time=1,
            finishing=pb.Finishing(
                order_by=[pb.Finishing.Order(column=2**31, down=True)],
                project=pb.Finishing.Project(columns=[4_000_000_000] * 99),
                limit=2**64 - 1,
                offset=2**64 - 1,
            ),
        )
    ),
}


@pytest.mark.parametrize("message", HOSTILE.values(), ids=HOSTILE)
def test_hostile_messages_do_no_harm_in_any_stage(replica: Attacked, message: bytes) -> None:
    (end,) = serialization.commands_to_messages(
        [CreateDataflow(VIEW), Schedule("u1"), InitializationComplete()], 10**6
    )
    replica.send_messages([message])
    replica.send_messages([*replica.begin(), message])
    replica.send_messages([*replica.begin(), end, message])
    replica.check_alive()


# What a connection may not say once it has begun, and what would end the process by its own rules.
_later = messages.commands.filter(lambda command: not isinstance(command, CreateTimely | CreateInstance))


@settings(max_examples=40)
@given(st.lists(_later, max_size=4), st.data())
def test_damaged_and_random_commands_do_no_harm(
    replica: Attacked, commands: list[Command], data: st.DataObject
) -> None:
    good: list[Command] = [
        CreateDataflow(VIEW),
        Schedule("u1"),
        InitializationComplete(),
        PEEK,
        CancelPeek(PEEK.uuid),
    ]
    told = data.draw(st.permutations([*good, *commands]))
    sent = [bytearray(serialization.command_to_bytes(command)) for command in told]
    for _ in range(data.draw(st.integers(0, 4))):
        damaged = data.draw(st.sampled_from(sent))
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    framed = list(serialization.assemble_group(map(bytes, sent), 10**6, "Command"))
    # A damaged kind may be another one: those that a stream begins with are left out.
    replica.send_messages([*replica.begin(), *framed])
    replica.check_alive()


_names = st.sampled_from([INPUT, OUTPUT, "auction", "other", ""])
_ids = st.sampled_from(["u1", "s1", "s9", "u7", "t1"])
_times = st.sampled_from([0, 1, 2, 4, 5, 2**63 - 1]).map(Frontier) | st.just(END)
_exports = (
    st.builds(IndexExport, st.just("u2"), _names, st.lists(_names, max_size=2).map(tuple))
    | st.builds(SubscribeExport, st.just("u2"), _names, st.booleans())
    | st.builds(CollectionExport, st.just("u2"), _names, _ids)
    | st.builds(
        CopyToExport, st.just("u2"), _names, st.sampled_from(["a.jsonl", "../a.jsonl", "a", "/a.jsonl"])
    )
)
_dataflows = st.builds(
    Dataflow,
    st.just(VIEW.plan) | st.builds(PlanBytes, st.binary(max_size=20)),
    st.lists(st.builds(CollectionImport, _names, _ids), max_size=2).map(tuple),
    st.lists(st.builds(IndexImport, _names, _ids), max_size=1).map(tuple),
    st.tuples(_exports),
    _times,
    _times,
)
ODD = replace(PEEK, uuid=b"odd." * 4)
_positions = st.integers(0, 3)
_peeks = st.builds(
    Peek,
    uuid=st.just(ODD.uuid),
    target=st.builds(IndexTarget, st.sampled_from(["u1", "u2"])) | st.builds(CollectionTarget, _ids),
    time=st.sampled_from([0, 1, 4, 5, 2**63 - 1]),
    keys=st.none()
    | st.lists(st.lists(messages.values | st.just({}), max_size=2).map(tuple), min_size=1).map(tuple),
    predicate=st.none() | st.binary(max_size=20),
    finishing=st.builds(
        Finishing,
        st.lists(st.tuples(_positions, st.booleans()), max_size=2).map(tuple),
        st.none() | st.integers(0, 3),
        st.integers(0, 3),
        st.none() | st.lists(_positions, max_size=3).map(tuple),
    ),
)


@settings(max_examples=40)
@given(_dataflows, _peeks, _times)
@example(replace(VIEW, exports=(CollectionExport("u2", OUTPUT, "s9"),)), ODD, END)
@example(
    replace(VIEW, collections=(CollectionImport(INPUT, "s9"),), exports=(IndexExport("u2", "x"),)), ODD, END
)
@example(VIEW, replace(ODD, keys=(({},),)), END)
@example(VIEW, replace(ODD, keys=((Decimal("sNaN"),),)), END)
def test_commands_that_make_no_sense_do_no_harm(
    replica: Attacked, dataflow: Dataflow, peek: Peek, since: Frontier
) -> None:
    told: list[Command] = [
        CreateDataflow(VIEW),
        Schedule("u1"),
        InitializationComplete(),
        peek,
        CreateDataflow(dataflow),
        Schedule("u2"),
        AllowWrites("u2"),
        PEEK,
        AllowCompaction("u2", since),
    ]
    replica.send_messages(
        [*replica.begin(), *(m for c in told for m in serialization.commands_to_messages([c], 10**6))]
    )
    replica.check_alive()


@settings(max_examples=20)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4))
def test_random_messages_do_no_harm(replica: Attacked, sent: list[bytes]) -> None:
    replica.send_messages([*replica.begin(), *sent])
    replica.send_messages(sent[:1], FETCH)
    replica.check_alive()


@settings(max_examples=10)
@given(
    st.dictionaries(
        st.sampled_from(
            ["x-headrace-protocol", "x-headrace-epoch", "authorization", "x-headrace-replica", "x"]
        ),
        st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30),
    )
)
def test_random_metadata_does_no_harm(replica: Attacked, metadata: dict[str, str]) -> None:
    async def attack() -> None:
        async with _grpc.aio.insecure_channel(replica.address) as channel:
            call = channel.stream_stream(STREAM)(metadata=tuple(metadata.items()))
            await call.done_writing()
            with pytest.raises(_grpc.aio.AioRpcError):
                await call.read()

    replica.runner.run(asyncio.wait_for(attack(), PATIENCE))
    replica.check_alive()
