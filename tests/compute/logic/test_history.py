"""The history: short, and of the same effect."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.compute.frontier import END, Frontier
from headrace.compute.history import CommandHistory, reduce_commands
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    CollectionImport,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    IndexExport,
    IndexImport,
    IndexTarget,
    InitializationComplete,
    InstanceConfig,
    Peek,
    PlanBytes,
    Schedule,
)
from headrace.compute.protocol.stages import ReplicaStages
from tests.compute.logic.model_replica import ModelReplica
from tests.compute.logic.random_commands import LAST, RandomController, random_commands

seeds = st.integers(0, 2**32).map(random.Random)
sessions = st.builds(random_commands, seeds, st.integers(1, 120), several=st.sampled_from((0.3, 0.9)))
"""Long ones, and such with many exports that are compacted one by one: what is left over is of these."""


def index(id: str, as_of: int, *, also: tuple[str, ...] = (), reads: tuple[str, ...] = ()) -> CreateDataflow:
    exports = tuple(IndexExport(i, "out") for i in (id, *also))
    imports = tuple(CollectionImport(f"in {i}", i) for i in reads)
    return CreateDataflow(Dataflow(PlanBytes(id.encode()), imports, (), exports, Frontier(as_of)))


def reader(id: str, of: str, as_of: int) -> CreateDataflow:
    imports = (IndexImport(f"in {of}", of),)
    export = IndexExport(id, "out")
    return CreateDataflow(Dataflow(PlanBytes(id.encode()), (), imports, (export,), Frontier(as_of)))


@given(sessions)
def test_a_reduced_history_has_the_effect_of_the_whole(commands: list[Command]) -> None:
    assert (
        ModelReplica(LAST).apply(reduce_commands(commands)).said()
        == ModelReplica(LAST).apply(commands).said()
    )


@given(sessions)
def test_a_reduced_history_is_allowed_where_the_whole_was(commands: list[Command]) -> None:
    for history in (commands, reduce_commands(commands)):
        stages = ReplicaStages()
        for command in history:
            stages.check_command(command)


PEEK = Peek(b"a", IndexTarget("u1"), 5)


@pytest.mark.parametrize(
    ("beyond_a_hold", "reduced"),
    [
        ([reader("u2", "u1", 0), AllowCompaction("u1", END)], [reader("u2", "u1", 0)]),
        (
            [reader("u2", "u1", 0), AllowCompaction("u1", Frontier(9))],
            [index("u1", 9), reader("u2", "u1", 0)],
        ),
        ([PEEK, AllowCompaction("u1", END)], [PEEK]),
        ([PEEK, AllowCompaction("u1", Frontier(9))], [index("u1", 9), PEEK]),
    ],
)
def test_a_history_beyond_read_holds_has_another_effect_once_reduced(
    beyond_a_hold: list[Command], reduced: list[Command]
) -> None:
    """The condition of the law. A controller's holds release a reader and a peek before what they read."""
    assert reduce_commands([index("u1", 0), *beyond_a_hold]) == reduced


@given(sessions)
def test_reducing_twice_changes_nothing(commands: list[Command]) -> None:
    once = reduce_commands(commands)
    assert reduce_commands(once) == once


@given(sessions)
@example(random_commands(random.Random(174)))
def test_a_history_that_was_pushed_one_by_one_is_the_reduced_one(commands: list[Command]) -> None:
    history = CommandHistory(commands)
    history.reduce()
    assert history.commands == reduce_commands(commands)


@given(sessions, st.data())
def test_what_comes_after_a_reduction_is_reduced_with_it(
    commands: list[Command], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(commands)))
    assert reduce_commands([*reduce_commands(commands[:at]), *commands[at:]]) == reduce_commands(commands)


@given(seeds)
def test_what_a_reduced_history_imports_can_still_be_read(chance: random.Random) -> None:
    controller = RandomController(chance)
    commands = [command for _ in range(40) for command in controller.step()]
    for command in reduce_commands(commands):
        if isinstance(command, CreateDataflow):
            since = [controller.collections[i.id] for i in command.dataflow.collections]
            assert all(s <= command.dataflow.as_of for s in since)


@given(seeds)
def test_a_history_is_never_longer_than_twice_what_is_alive(chance: random.Random) -> None:
    history, most = CommandHistory(), 0
    for command in random_commands(chance, 60):
        history.push(command)
        most = max(most, len(reduce_commands(history.commands)))
        assert len(history) <= max(2 * most, 1)


def test_a_history_stays_short_whatever_comes_and_goes() -> None:
    history = CommandHistory([CreateTimely(), CreateInstance(InstanceConfig("memory:")), index("u1", 0)])
    for time in range(1000):
        uuid = time.to_bytes(16, "big")
        history.push(Peek(uuid, IndexTarget("u1"), time))
        history.push(CancelPeek(uuid))
        history.push(AllowCompaction("u1", Frontier(time)))
        assert len(history) <= 8


def test_what_is_kept_stands_in_the_order_of_the_protocol() -> None:
    both = index("u1", 5, also=("u2",))
    commands: list[Command] = [
        CreateTimely(),
        CreateInstance(InstanceConfig("memory:")),
        both,
        InitializationComplete(),
        AllowWrites("u1"),
        AllowCompaction("u1", Frontier(9)),
        Peek(b"b", IndexTarget("u2"), 5),
        Peek(b"a", IndexTarget("u2"), 5),
        Schedule("u2"),
        AllowWrites("u1"),
    ]
    names = [type(command).__name__ for command in reduce_commands(commands)]
    assert names == [
        "CreateTimely",
        "CreateInstance",
        "CreateDataflow",
        "Schedule",
        "Peek",
        "Peek",
        "AllowCompaction",
        "AllowWrites",
        "InitializationComplete",
    ]
    assert [c.uuid for c in reduce_commands(commands) if isinstance(c, Peek)] == [b"a", b"b"]


def test_permission_to_write_goes_with_its_dataflow() -> None:
    assert reduce_commands([index("u1", 5), AllowWrites("u1"), AllowCompaction("u1", END)]) == []


def test_a_dropped_export_is_not_allowed_to_write_while_others_of_its_dataflow_go_on() -> None:
    both = index("u1", 5, also=("u2",))
    drop = AllowCompaction("u2", END)
    assert reduce_commands([both, AllowWrites("u2"), drop]) == [both, drop]


def test_a_compaction_to_the_as_of_says_nothing() -> None:
    assert reduce_commands([index("u1", 5), AllowCompaction("u1", Frontier(5))]) == [index("u1", 5)]


@pytest.mark.parametrize(
    "commands",
    [
        [index("u1", 9), AllowCompaction("u1", Frontier(5))],
        [
            index("u1", 9, also=("u2",)),
            AllowCompaction("u1", Frontier(12)),
            AllowCompaction("u2", Frontier(8)),
        ],
        [index("u1", 0), AllowCompaction("u1", Frontier(7)), AllowCompaction("u1", Frontier(6))],
        [index("u1", 0, also=("u2",)), AllowCompaction("u1", END), AllowCompaction("u1", Frontier(6))],
    ],
)
def test_a_compaction_that_goes_back_is_refused(commands: list[Command]) -> None:
    with pytest.raises(AssertionError, match="goes back"):
        reduce_commands(commands)
    with pytest.raises(AssertionError, match="goes back"):
        CommandHistory(commands).reduce()


def test_compactions_that_are_left_stand_in_the_order_of_creation() -> None:
    first, second = index("u1", 0, also=("u2",)), index("u3", 0, also=("u4",))
    later, sooner = AllowCompaction("u4", Frontier(3)), AllowCompaction("u2", Frontier(1))
    assert reduce_commands([first, second, later, sooner]) == [first, second, sooner, later]


def test_a_dropped_export_of_a_dataflow_that_goes_on_stays_dropped() -> None:
    both = index("u1", 5, also=("u2",))
    drop = AllowCompaction("u1", END)
    assert reduce_commands([both, drop]) == [both, drop]


def test_replaying_puts_the_present_uppers_into_the_imports_and_nothing_else() -> None:
    (created,) = CommandHistory([index("u1", 5, reads=("s1", "s2"))]).replay({"s1": Frontier(50)})
    assert isinstance(created, CreateDataflow)
    assert {i.id: i.upper for i in created.dataflow.collections} == {"s1": Frontier(50), "s2": Frontier(0)}
    assert created == index("u1", 5, reads=("s1", "s2"))


def test_a_compaction_that_goes_back_is_refused_by_an_optimized_python_too() -> None:
    program = """
from headrace.compute.frontier import Frontier
from headrace.compute.history import reduce_commands
from headrace.compute.protocol.commands import AllowCompaction

try:
    reduce_commands([AllowCompaction("u1", Frontier(7)), AllowCompaction("u1", Frontier(6))])
except AssertionError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True, check=True)
    assert "a compaction of u1 goes back" in done.stdout
