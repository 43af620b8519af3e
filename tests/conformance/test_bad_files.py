"""What is wrong with a file of cases, or with one of them, is said, and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.case_format import BadCase, Fields
from tests.conformance.case_functions import NotAFunction, function_of
from tests.conformance.runner import run_file
from tests.golden import assert_golden

TEXTS = Path(__file__).parent / "bad_files"
CASE: dict[str, Any] = {
    "name": "x",
    "nodes": {"a": {"op": "source"}, "out": {"op": "sink"}},
    "edges": [["a", "out"]],
    "inputs": ["a"],
    "outputs": ["out"],
    "ticks": [{"a": [1]}],
    "expected": [{"out": [1]}],
    "order": "exact",
}


def case(**changed: Any) -> str:
    return json.dumps([{**CASE, **changed}])


def node(**fields: Any) -> str:
    return case(nodes={"a": {"op": "source"}, "f": fields, "out": {"op": "sink"}})


def without(field: str) -> str:
    return json.dumps([{name: value for name, value in CASE.items() if name != field}])


TRACE: dict[str, Any] = {
    "name": "x",
    "kind": "trace",
    "layer": 1,
    "complete": True,
    "events": ["D:ask1", "U:ans1=done"],
    "valid": True,
    "spec_violations": [],
    "valid_docs_spec": True,
    "docs_spec_violations": [],
}


def trace(**changed: Any) -> str:
    return json.dumps([{**TRACE, **changed}])


FILES = {"not_json": "[{]", "not_an_array": '{"name": "x"}'}
CASES = {
    "not_an_object": '["x"]',
    "no_name": without("name"),
    "no_order": without("order"),
    "unknown_order": case(order="sorted"),
    "input_that_is_no_source": case(inputs=["out"]),
    "output_that_is_no_node": case(outputs=["x"]),
    "tick_of_no_input": case(ticks=[{"b": [1]}]),
    "tick_that_is_no_object": case(ticks=[[1]]),
    "rows_that_are_no_array": case(ticks=[{"a": 1}]),
    "row_that_is_an_object": case(ticks=[{"a": [{"k": 1}]}]),
    "edge_that_is_no_pair": case(edges=[["a", "f", "out"]]),
    "node_without_operator": node(args={}),
    "node_with_another_field": node(op="map", lifetimes="static"),
    "node_with_a_dot": case(nodes={"a.b": {"op": "source"}}),
    "lifetime_that_is_a_number": node(op="fold", lifetime=1),
    "function_that_is_no_text": node(op="map", args={"fn": 1}),
    "function_that_is_no_python": node(op="map", args={"fn": "lambda x: x +"}),
    "function_that_is_no_lambda": node(op="map", args={"fn": "print"}),
    "function_that_opens_files": node(op="map", args={"fn": "lambda x: open(x)"}),
    "function_that_looks_inside": node(op="map", args={"fn": "lambda x: x.__class__"}),
    "ends_at_no_tick": case(ends_at_tick="soon"),
}
PULL_CASES = {
    "trace_of_no_kind": trace(kind=None),
    "trace_of_another_kind": trace(kind="traces"),
    "trace_of_layer_four": trace(layer=4),
    "trace_of_layer_true": trace(layer=True),
    "trace_that_is_perhaps_complete": trace(complete="perhaps"),
    "trace_without_events": json.dumps([{k: v for k, v in TRACE.items() if k != "events"}]),
    "trace_with_a_bad_event": trace(events=["D:ask1", "U:ans1"]),
    "trace_with_a_number": trace(events=[1]),
    "trace_without_a_label": json.dumps([{k: v for k, v in TRACE.items() if k != "docs_spec_violations"}]),
    "trace_with_labels_at_odds": trace(spec_violations=["P1"]),
}
COMPUTE: dict[str, Any] = {
    "name": "x",
    "kind": "history",
    "given": {"commands": [["Schedule", "u1"]]},
    "when": "reduce()",
    "then": {"commands": []},
}


def compute(**changed: Any) -> str:
    return json.dumps([{**COMPUTE, **changed}])


def compute_dataflow(**changed: Any) -> str:
    described = {"exports": ["u1"], "as_of": [5], "imports": [], "plan": "p", **changed}
    return compute(given={"commands": [["CreateDataflow", described]]})


def answers(*said: Any) -> str:
    given = {"parts": 2, "input": [[worker, each] for worker, each in enumerate(said)]}
    return compute(kind="partition", given=given, when="absorb", then={"emitted": [None] * len(said)})


COMPUTE_CASES = {
    "compute_without_a_kind": json.dumps([{k: v for k, v in COMPUTE.items() if k != "kind"}]),
    "compute_command_that_there_is_not": compute(given={"commands": [["Stop", "u1"]]}),
    "compute_command_that_is_text": compute(given={"commands": ["Schedule"]}),
    "compute_command_that_says_too_little": compute(given={"commands": [["Schedule"]]}),
    "compute_frontier_of_two_times": compute(given={"commands": [["AllowCompaction", "u1", [1, 2]]]}),
    "compute_dataflow_without_exports": compute(given={"commands": [["CreateDataflow", {"as_of": [1]}]]}),
    "compute_dataflow_with_another_field": compute_dataflow(asof=[5]),
    "compute_dataflow_of_two_kinds": compute_dataflow(subscribe=True, copy_to=True),
    "compute_dataflow_whose_imports_are_no_ids": compute_dataflow(imports=[1]),
    "compute_dataflow_that_is_a_number": compute(given={"commands": [["CreateDataflow", 5]]}),
    "compute_instance_with_another_field": compute(given={"commands": [["CreateInstance", {"loging": {}}]]}),
    "compute_peek_with_another_field": compute(given={"commands": [["Peek", "a", {"time": 5}]]}),
    "compute_setting_that_is_no_number": compute(
        given={"commands": [["UpdateConfiguration", {"max_result_size": "much"}]]}
    ),
    "compute_more_settings_than_there_are": compute(
        given={"commands": [["UpdateConfiguration", dict.fromkeys("abcd", 1) | {"max_result_size": 1}]]}
    ),
    "compute_answers_to_two_things": answers(["Rows", []], ["RowCount", 3]),
    "compute_error_of_a_subscription": answers(["Batch", [0], [5], []], ["Error", "e"]),
    "compute_answer_that_says_too_little": answers(["Rows", []], ["Rows"]),
    "compute_batch_of_another_field": answers(["Batch", [0], [5], {"Error": "e"}]),
    "compute_batch_that_failed_without_text": answers(["Batch", [0], [5], {"Err": 5}]),
    "compute_batch_of_text": answers(["Batch", [0], [5], "e"]),
    "compute_act_that_there_is_not": compute(when="shrink()"),
    "compute_frontier_that_is_text": compute(
        kind="schedule", given={"u1 as_of": "5", "input s1 upper": [5]}, when="s1 upper -> [6]"
    ),
    "compute_policy_that_there_is_not": compute(
        kind="as_of",
        given={
            "storage(since,upper)": {"s1": [1, 2]},
            "dataflows(export<-inputs)": [["u1", ["s1"]]],
            "read_policies": {"u1": "for ever"},
        },
    ),
}
OF_KIND: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "ticks": (CASES, CASE),
    "pull": (PULL_CASES, TRACE),
    "compute": (COMPUTE_CASES, COMPUTE),
}
"""By kind, cases that do not fit and one that does."""
KIND_OF = {name: kind for kind, (cases, _) in OF_KIND.items() for name in cases}


@pytest.mark.parametrize("name", FILES)
def test_the_error_of_a_file_reads_as_it_should(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cases.json").write_text(FILES[name])
    with pytest.raises(BadCase) as caught:
        run_file("ticks", "cases.json")
    assert_golden(TEXTS / f"{name}.txt", f"{caught.value}\n")


@pytest.mark.parametrize("name", KIND_OF)
def test_a_case_that_does_not_fit_fails_and_the_others_run(name: str, tmp_path: Path) -> None:
    kind = KIND_OF[name]
    cases, fits = OF_KIND[kind]
    (tmp_path / "cases.json").write_text(json.dumps([*json.loads(cases[name]), {**fits, "name": "good"}]))
    bad, good = run_file(kind, tmp_path / "cases.json")
    assert good.ok
    assert_golden(TEXTS / f"{name}.txt", f"{bad.name}: {bad.problem}\n")


def test_a_field_that_is_asked_for_says_what_to_do() -> None:
    with pytest.raises(BadCase) as caught:
        Fields({"n": "one"}, "x").number("n")
    assert caught.value.case == "x"
    assert caught.value.fix


@pytest.mark.parametrize("value", [True, False])
def test_true_and_false_are_no_numbers(value: bool) -> None:
    with pytest.raises(BadCase, match="not a whole number"):
        Fields({"n": value}, "x").number("n")


def test_a_file_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadCase) as caught:
        run_file("ticks", "cases.json")
    assert_golden(TEXTS / "no_file.txt", f"{caught.value}\n")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "cases.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadCase, match=r"cases\.json cannot be read"):
        run_file("ticks", tmp_path / "cases.json")


def test_a_kind_that_there_is_not_is_named() -> None:
    with pytest.raises(BadCase) as caught:
        run_file("tick", "cases.json")
    assert_golden(TEXTS / "unknown_kind.txt", f"{caught.value}\n")


def test_no_text_is_left_without_its_file() -> None:
    assert {path.stem for path in TEXTS.glob("*.txt")} == {*FILES, *KIND_OF, "no_file", "unknown_kind"}


@pytest.mark.parametrize(
    "text",
    [
        "lambda x: __import__('os')",
        "lambda x: eval(x)",
        "lambda x: getattr(x, 'y')",
        "lambda x: [].__class__",
        "lambda x: x._private",
        "lambda x: undefined",
        "lambda: (yield)",
        "lambda: (lambda q: [q.append((h.gi_frame.f_back.f_back.f_back for h in q)), next(q[0])])([])[1]",
        "lambda x: '{0.__class__}'.format(x)",
        "lambda x: str.format_map(x, {})",
        "lambda f: f.f_globals",
        "lambda: [x async for x in y]",
        "1 + 1",
        "x = 1",
        "lambda x: x; 1",
        "",
    ],
)
def test_a_function_that_is_more_than_a_function_is_refused(text: str) -> None:
    with pytest.raises(NotAFunction):
        function_of(text)


@pytest.mark.parametrize(
    ("text", "arguments", "answer"),
    [
        ("  lambda x: x + 77", (1,), 78),
        ("lambda *xs: sum(xs)", (1, 2, 3), 6),
        ("lambda acc, x: {**acc, x: acc.get(x, 0) + 1}", ({1: 1}, 1), {1: 2}),
        ("lambda a: tuple(sorted({k: v for k, v in a if k}.items()))", ([(2, 1), (0, 5)],), ((2, 1),)),
    ],
)
def test_a_function_is_compiled_from_its_text(text: str, arguments: tuple[Any, ...], answer: object) -> None:
    assert function_of(text)(*arguments) == answer
