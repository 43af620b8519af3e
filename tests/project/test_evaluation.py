"""What runs text or bytes as code, all of it, each with the reason why nobody else's can get there."""

from __future__ import annotations

import ast
from pathlib import Path

import headrace

SOURCE = Path(headrace.__file__).parent
RUNS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "import_module",
    "exec_module",
    "get_type_hints",
    "load_module",
    "run_module",
    "run_path",
}
LOADS = {"loads", "load", "Unpickler"}
"""Of the modules below, which build objects by calling what their bytes name."""
LOADERS = {"pickle", "cloudpickle", "marshal", "shelve", "dill"}

_GENERATED = "code that we write from a checked flow; names in it are ours, values stand in its namespace"
_BY_NAME = "a name out of a table of ours"
_OWN_PROCESS = "bytes between a driver and its own tasks, which run the user's functions anyway"
_OWN_FUNCTIONS = "functions of the user's project, pickled by this process just before"
_ANNOTATIONS = "annotations of classes and functions, ours or of the user's own program"

JUDGED = {
    ("__init__.py", "import_module"): _BY_NAME,
    ("operators/__init__.py", "import_module"): _BY_NAME,
    ("shown.py", "import_module"): "a fixed name of ours",
    ("cli/load_flow.py", "exec_module"): "the user's own file, whose flow is to be run",
    ("cli/load_flow.py", "get_type_hints"): _ANNOTATIONS,
    ("cli/load_flow.py", "import_module"): "the user's own module, whose flow is to be run",
    ("compute/plans/encoding.py", "loads"): "only with --allow-callables, which says so",
    ("compute/replica/durable_exports.py", "import_module"): _BY_NAME,
    ("compute/replica/peek_finishing.py", "eval"): _GENERATED,
    ("compute/controller/status.py", "get_type_hints"): _ANNOTATIONS,
    ("compute/plans/registry.py", "get_type_hints"): _ANNOTATIONS,
    ("compute/protocol/codec_derivation.py", "get_type_hints"): _ANNOTATIONS,
    ("compute/protocol/row_batch.py", "import_module"): "a fixed name of ours",
    ("engine/columnar/columnar_flow.py", "compile"): _GENERATED,
    ("engine/columnar/columnar_flow.py", "exec"): _GENERATED,
    ("columns/expressions.py", "eval"): _GENERATED,
    ("engine/runtime_library.py", "eval"): "names of variables of generated code",
    ("engine/live_table.py", "import_module"): "a fixed name of ours",
    ("engine/program.py", "compile"): _GENERATED,
    ("engine/program.py", "exec"): _GENERATED,
    ("engine/signals/signal_machine.py", "compile"): _GENERATED,
    ("engine/signals/signal_machine.py", "exec"): _GENERATED,
    ("operators/statistics/kernel.py", "eval"): _GENERATED,
    ("operators/statistics/kernel.py", "exec"): _GENERATED,
    ("expr/types.py", "get_type_hints"): _ANNOTATIONS,
    ("requirements.py", "import_module"): _BY_NAME,
    ("expr/row_classes.py", "compile"): _GENERATED,
    ("expr/row_classes.py", "exec"): _GENERATED,
    ("expr/compile_python.py", "exec"): _GENERATED,
    ("operators/column_arguments.py", "get_type_hints"): _ANNOTATIONS,
    ("flow/fold_arguments.py", "get_type_hints"): _ANNOTATIONS,
    ("io/files/json_values.py", "exec"): _GENERATED,
    ("pipelines/__init__.py", "import_module"): "a fixed name of ours",
    (
        "pipelines/kept_analysis.py",
        "loads",
    ): "a part that only the user can write, with its checksum",
    ("pipelines/definition_files.py", "exec_module"): "the user's own project, which is to be run",
    ("pipelines/table_fingerprints.py", "loads"): _OWN_FUNCTIONS,
    ("pull/__init__.py", "import_module"): _BY_NAME,
    ("spark/batch/subplans.py", "loads"): _OWN_PROCESS,
    ("spark/batch/run_batch.py", "loads"): _OWN_PROCESS,
    ("spark/examination.py", "__import__"): _BY_NAME,
    ("spark/placing/row_placement.py", "exec"): _GENERATED,
    ("spark/sources/pull_source.py", "loads"): _OWN_PROCESS,
    ("spark/ticks/failures.py", "loads"): _OWN_PROCESS,
    ("spark/ticks/messages.py", "loads"): _OWN_PROCESS,
    ("spark/ticks/plan.py", "loads"): _OWN_PROCESS,
    ("lowering/reference.py", "eval"): _GENERATED,
}


def found_in(file: Path) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    place = file.relative_to(SOURCE).as_posix()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)):
                if name in RUNS - {"compile"} or (name in LOADS and module in LOADERS):
                    found.add((place, name))
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in RUNS:
                if isinstance(node.func, ast.Name) or name != "compile":
                    found.add((place, name))
            case ast.ImportFrom(module=module, names=names) if module in LOADERS:
                found |= {(place, each.name) for each in names if each.name in LOADS}
            case _:
                pass
    return found


def test_whatever_runs_text_or_bytes_has_been_judged() -> None:
    found = {each for file in SOURCE.rglob("*.py") for each in found_in(file)}
    assert found == JUDGED.keys()
