"""`headrace trace`."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from headrace.cli.main import app

BROKEN = """\
1  D:ask1
2  U:ans1=done
3  D:ask2
4  U:ans2=value(7)

P4  After an end no ask is answered by a value, and after done nothing by an error.
    4  U:ans2=value(7)   <- a value after done
    2  U:ans1=done

1 rule broken
"""


def trace(text: str | bytes, tmp_path: Path, *options: str) -> Result:
    path = tmp_path / "trace.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return CliRunner().invoke(app, ["trace", str(path), *options])


def test_a_trace_that_keeps_the_rules(tmp_path: Path) -> None:
    done = trace("# recorded\nD:ask1 U:ans1=value(7)\nD:abort2 U:ans2=done\n", tmp_path)
    assert done.exit_code == 0
    assert done.stdout == ("1  D:ask1\n2  U:ans1=value(7)\n3  D:abort2\n4  U:ans2=done\n\nno rule broken\n")


def test_a_broken_rule_is_told_with_its_sentence_and_both_events(tmp_path: Path) -> None:
    done = trace("D:ask1 U:ans1=done D:ask2 U:ans2=value(7)", tmp_path)
    assert (done.exit_code, done.stdout) == (1, BROKEN)


def test_something_that_is_missing_has_one_event(tmp_path: Path) -> None:
    done = trace("D:ask1\n", tmp_path)
    assert done.exit_code == 1
    assert done.stdout == (
        "1  D:ask1\n\nP9  Every request is answered in the end.\n"
        "    1  D:ask1   <- request 1 has no answer\n\n1 rule broken\n"
    )


def test_an_empty_trace_has_no_event_to_blame(tmp_path: Path) -> None:
    assert trace("", tmp_path).stdout == f"{tmp_path / 'trace.txt'} has no events\n"
    done = trace("", tmp_path, "--profile", "strict")
    assert done.exit_code == 1
    assert done.stdout == (
        "\nI7  The stream is stopped or ends.\n    nothing stops or ends the stream\n\n1 rule broken\n"
    )


def test_a_profile_is_chosen(tmp_path: Path) -> None:
    two = "D:ask1 D:ask2 U:ans1=value(7) U:ans2=done"
    assert trace(two, tmp_path).exit_code == 0
    assert (
        "\nS1  No ask is made before the last one is answered.\n"
        in trace(two, tmp_path, "--profile", "docs").stdout
    )
    assert trace(two, tmp_path, "--profile", "strict").exit_code == 0


def test_a_layer_is_chosen_over_the_one_in_the_file(tmp_path: Path) -> None:
    text = "layer: 2\nD:abort1 U:ans1=done"
    assert trace(text, tmp_path).exit_code == 0
    assert "belongs to layer 2, and this is layer 1" in trace(text, tmp_path, "--layer", "1").stdout
    assert trace(text, tmp_path, "--layer", "4").exit_code == 2


def test_a_trace_that_was_cut_off_owes_nothing(tmp_path: Path) -> None:
    assert trace("complete: no\nD:ask1", tmp_path).exit_code == 0


def test_a_transformer_that_is_not_one_to_one(tmp_path: Path) -> None:
    filtered = "D:ask1 TI:ask1 U:ansT1=value(1) TI:ask2 U:ansT2=done TO:ans1=done"
    assert trace(filtered, tmp_path).exit_code == 1
    assert trace(filtered, tmp_path, "--no-one-to-one").exit_code == 0


def test_events_of_a_transformer_are_shown_in_their_notation(tmp_path: Path) -> None:
    done = trace("D:ask1 TI:ask1 U:ansT1=error(E) TO:ans1=done", tmp_path)
    assert "3  U:ansT1=error(E)\n" in done.stdout
    assert "    4  TO:ans1=done   <- upstream has ended by error(E)\n    3  U:ansT1=error(E)\n" in done.stdout


def test_json_is_read_too(tmp_path: Path) -> None:
    assert trace('\ufeff{"events": ["D:ask1"], "complete": false}', tmp_path).exit_code == 0


def test_what_cannot_be_read_is_refused_with_its_place(tmp_path: Path) -> None:
    for text, told in (
        ("D:ask1\nD:nothing", "trace.txt: line 2, column 1: 'D:nothing' is no event"),
        (b"\xff\xfeD", "trace.txt cannot be read: 'utf-8' codec can't decode"),
        (b"\x00\x01", "trace.txt: line 1, column 1: '\\x00\\x01' is no event"),
    ):
        done = trace(text, tmp_path)
        assert (done.exit_code, done.stdout) == (2, "")
        assert told in done.stderr
    done = CliRunner().invoke(app, ["trace", str(tmp_path / "none.txt")])
    assert done.exit_code == 2
    assert "none.txt cannot be read: No such file or directory" in done.stderr


def test_a_profile_that_there_is_not_is_refused(tmp_path: Path) -> None:
    done = trace("D:ask1", tmp_path, "--profile", "lax")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "P501 BadTrace: there is no profile 'lax'\n\nFix: one of spec, docs, strict"
    )
