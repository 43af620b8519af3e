"""process: a program beside, from its start to its end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import BadOption
from headrace.pull import collect, concat, error, infinite, lines, map, process, pull, take, values
from headrace.pull.errors import ProcessFailed, WrongValue
from tests.pull.core.modules import Hand, Manual
from tests.pull.io.network import in_loop, until


class Failure(Exception):
    pass


def python(program: str, **options: Any) -> Any:
    """A process that runs this program."""
    return process([sys.executable, "-S", "-c", program], **options)


def alive(pid: bytes) -> bool:
    return Path(f"/proc/{int(pid)}").exists()


SAY_PID = "import os, sys, time; os.write(1, b'%d\\n' % os.getpid()); "


def test_what_goes_in_comes_out() -> None:
    assert pull(values([b"b\na", b"\n"]), process(["sort"]), lines(), collect()).run() == ["a", "b"]
    assert pull(values([b"x" * 100_000] * 20), process(["cat"]), map(len), collect()).run() != []
    assert pull(values([b"x" * 100_000] * 20), process(["cat"]), concat(b"")).run() == b"x" * 2_000_000


def test_each_half_may_be_used_alone(tmp_path: Path) -> None:
    assert pull(process(["echo", "a b"]).source, concat(b"")).run() == b"a b\n"
    assert pull(values([b"abc"]), process(["tee", tmp_path / "x"]).sink).run() == 3
    assert (tmp_path / "x").read_bytes() == b"abc"


def test_a_half_that_is_not_used_is_connected_with_nothing() -> None:
    assert pull(process(["cat"]).source, collect()).run() == []
    assert pull(values([b"x" * 1_000_000]), process(["cat"]).sink).run() == 1_000_000


def test_each_run_starts_it_anew_and_nothing_does_before() -> None:
    again = process(["echo", "a"])
    for _ in range(2):
        assert pull(again.source, concat(b"")).run() == b"a\n"
    hand = Hand()
    pull(process(["nonesuch"]).source, hand.sink).start()
    assert hand.heard == []


def test_where_it_runs_and_with_which_variables(tmp_path: Path) -> None:
    assert pull(process(["/bin/pwd"], cwd=tmp_path).source, lines(), collect()).run() == [str(tmp_path)]
    assert pull(process(["/usr/bin/env"], env={"A": "b"}).source, lines(), collect()).run() == ["A=b"]


def test_there_is_no_shell() -> None:
    assert pull(process(["echo", "$HOME; ls"]).source, lines(), collect()).run() == ["$HOME; ls"]
    with pytest.raises(BadOption, match="cannot start"):
        process("ls -l")
    with pytest.raises(BadOption):
        process([])


# --- ends that come early --------------------------------------------------------------------------------


def test_an_aborted_source_ends_the_program_before_that_is_confirmed() -> None:
    forever = python(SAY_PID + "time.sleep(1000)")
    found = pull(forever.source, lines(), take(1), collect()).run()
    assert not alive(found[0])


def test_a_program_that_nobody_reads_any_more_is_ended_too() -> None:
    assert pull(process(["yes"]).source, lines(), take(2), collect()).run() == ["y", "y"]


def test_a_program_that_does_not_heed_is_killed() -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SAY_PID
    found = pull(python(deaf + "time.sleep(1000)", grace=0.05).source, lines(), take(1), collect()).run()
    assert not alive(found[0])


@in_loop
async def test_an_abort_while_a_read_waits_answers_that_first() -> None:
    hand = Hand()
    pull(python("import time; time.sleep(1000)").source, hand.sink).start()
    hand.request("ask")
    await asyncio.sleep(0.01)
    hand.request("abort", True)
    assert hand.heard == []
    await until(lambda: len(hand.heard) == 2)
    assert hand.heard == [("ask", True), ("abort", True)]


def test_a_program_that_wants_no_more_aborts_what_it_was_given() -> None:
    heard: list[Any] = []
    given = values([b"line\n"] * 1_000_000, on_stop=heard.append)
    assert pull(given, process(["head", "-n", "2"]), lines(), collect()).run() == ["line", "line"]
    assert heard == [None]


@in_loop
async def test_a_failure_upstream_ends_the_program_and_is_what_its_source_fails_with() -> None:
    source, hand = Manual(), Hand()
    run = pull(source.source, python(SAY_PID + "time.sleep(1000)"), hand.sink).start()
    hand.request("pid")
    await until(lambda: hand.heard)
    hand.request("ask")
    failure = Failure("upstream")
    await until(lambda: source.requests)
    source.answer(0, failure)
    await until(lambda: len(hand.heard) == 2)
    assert (hand.heard[1], alive(hand.heard[0][1])) == (("ask", failure), False)
    await until(lambda: run.error is failure)


def test_a_value_that_is_no_bytes_is_named() -> None:
    with pytest.raises(WrongValue, match=r"process\(\) takes bytes, got int"):
        pull(values([b"a", 3]), process(["cat"]), collect()).run()


@in_loop
async def test_a_pipeline_whose_await_is_cancelled_ends_its_program() -> None:
    seen: list[bytes] = []
    source = python(SAY_PID + "time.sleep(1000)").source

    async def main() -> None:
        await pull(source, map(seen.append), collect())

    task = asyncio.ensure_future(main())
    await until(lambda: seen)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(seen[0])


@pytest.mark.parametrize("program", ["sys.stdin.read()", "os.close(0)"])
@in_loop
async def test_a_cancelled_await_ends_a_program_that_wants_no_more_and_goes_on(
    tmp_path: Path, program: str
) -> None:
    said = tmp_path / "pid"
    lives_on = (
        f"import os, sys, time; {program}; open({str(said)!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
    )

    async def main() -> None:
        await pull(values([b"x"] * 9), python(lives_on).sink)

    task = asyncio.ensure_future(main())
    await until(lambda: said.exists() and said.read_text())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(said.read_bytes())


# --- programs that fail ------------------------------------------------------------------------------


def test_an_exit_code_is_a_failure_with_what_was_said_last() -> None:
    run = python("import sys; print('out'); sys.stderr.write('x' * 9000 + 'no such thing'); sys.exit(3)")
    with pytest.raises(ProcessFailed, match="ended with code 3") as raised:
        pull(run.source, collect()).run()
    assert raised.value.facts["exit_code"] == 3
    assert raised.value.facts["stderr"] == ("x" * 9000 + "no such thing")[-4096:]
    assert "no such thing" in raised.value.why


def test_what_came_before_a_failure_is_kept() -> None:
    run = pull(python("print('out', flush=True); 1/0").source, lines(), collect())
    started: list[Any] = []

    async def main() -> None:
        started.append(run.start())
        await started[0]

    with pytest.raises(ProcessFailed, match="ended with code 1") as raised:
        asyncio.run(main())
    assert started[0].partial == ["out"]
    assert "ZeroDivisionError" in raised.value.why


def test_codes_that_are_no_failure() -> None:
    assert pull(values([b"a\n"]), process(["grep", "b"], codes=(0, 1)), collect()).run() == []


def test_a_signal_from_elsewhere_is_a_failure() -> None:
    with pytest.raises(ProcessFailed, match="ended by signal 9"):
        pull(python("import os; os.kill(os.getpid(), 9)").source, collect()).run()


def test_a_program_that_fails_is_a_failure_of_its_sink_alone_too() -> None:
    with pytest.raises(ProcessFailed, match="ended with code 4"):
        pull(infinite(lambda: b"x" * 1000), python("import sys; sys.exit(4)").sink).run()
    with pytest.raises(ProcessFailed, match="ended with code 5"):
        pull(values([b"x"]), python("import sys; sys.stdin.read(); sys.exit(5)").sink).run()


def test_a_program_that_is_not_there_is_named_with_the_line() -> None:
    heard: list[Any] = []
    with pytest.raises(ProcessFailed, match="'nonesuch' cannot be started") as raised:
        pull(values([b"a"], on_stop=heard.append), process(["nonesuch"]), collect()).run()
    assert heard == [raised.value]
    assert "process(['nonesuch'])" in raised.value.where[0].location.text.replace('"', "'")


def test_a_failure_upstream_is_not_hidden_by_the_end_that_it_brings_to_the_program() -> None:
    with pytest.raises(Failure, match="upstream") as raised:
        pull(error(Failure("upstream")), process(["cat"]), collect()).run()
    assert getattr(raised.value, "__notes__", []) == []


def test_a_child_of_the_program_that_holds_its_pipes_is_not_waited_for() -> None:
    child = "import os, time\nif os.fork() == 0: time.sleep(20)"
    run = pull(
        python(f"{child}\nelse: print(1, flush=True); os.close(1)").source, lines(), take(1), collect()
    )
    assert run.run() == ["1"]
