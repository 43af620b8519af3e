"""Loader of the flow named by a command: `module:flow`, `path/to/file.py:flow`, `query.sql`, `query.plan`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import typing
from pathlib import Path
from types import FunctionType, ModuleType

from penstock.errors import FlowNotFound, PenstockError, SourceLocation
from penstock.flow.flow import Flow


def load_flow(name: str) -> Flow:
    """Load a flow, or call the function without arguments that returns one.

    Modules and their imports are also found in the current folder, as with `python -m`. Without `:flow`, the
    module must hold exactly one flow. A file of SQL is planned by Spark, unless its plan is beside it.
    Raises `FlowNotFound`, and whatever building the flow raises.
    """
    if name.endswith((".sql", ".plan")):
        return _load_query(Path(name))
    where, _, attribute = name.partition(":")
    module = _load_file(Path(where)) if where.endswith(".py") else _load_module(where)
    found = _attribute(module, where, attribute) if attribute else _only_flow(module, where)
    if not isinstance(found, Flow) and callable(found):
        found = _calling(found, where, attribute)
    if not isinstance(found, Flow):
        raise FlowNotFound(
            f"{attribute!r} of {where} is {type(found).__name__}, not a flow",
            fix="name a Flow, or a function without arguments that returns one",
            name=name,
        )
    return found


def _load_query(path: Path) -> Flow:
    """Load a query, or a plan that was saved."""
    from penstock.queries.query_file import load_flow as load_plan
    from penstock.queries.query_file import load_query

    if not path.is_file():
        raise FlowNotFound(f"there is no file {path}", fix="name a .sql or a .plan file", name=str(path))
    return load_query(path) if path.suffix == ".sql" else load_plan(path)


def _load_module(where: str) -> ModuleType:
    _search_first(Path.cwd())
    try:
        return importlib.import_module(where)
    except PenstockError:
        raise
    except Exception as error:
        missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if missing and (where == missing or where.startswith(f"{missing}.")):
            raise FlowNotFound(
                f"there is no module {where!r}",
                why=f"it was looked for in {Path.cwd()} and where Python looks",
                fix="write module:flow or path/to/file.py:flow",
                name=where,
            ) from None
        raise _failed(where, error) from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FlowNotFound(
            f"there is no file {path}", fix="write module:flow or path/to/file.py:flow", name=str(path)
        )
    # As for a script, modules beside the file come first in the import path. Then come the packages of the
    # project, from whose folder commands are usually run.
    _search_first(Path.cwd())
    _search_first(path.resolve().parent)
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except PenstockError:
        raise
    except Exception as error:
        raise _failed(str(path), error) from error
    return module


def _search_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _attribute(module: ModuleType, where: str, path: str) -> object:
    found: object = module
    for part in path.split("."):
        if not hasattr(found, part):
            flows = ", ".join(_flows(module))
            raise FlowNotFound(
                f"{where} has no {path!r}",
                fix=f"the flows there: {flows}"
                if flows
                else "nothing in it is a flow, or says by `-> Flow` that it makes one",
                name=f"{where}:{path}",
            )
        found = getattr(found, part)
    return found


def _only_flow(module: ModuleType, where: str) -> object:
    flows = _flows(module)
    if len(flows) == 1:
        return getattr(module, flows[0])
    raise FlowNotFound(
        f"{where} has {len(flows) or 'no'} flows" + (f": {', '.join(flows)}" if flows else ""),
        fix=f"say which one: {where}:{flows[0] if flows else 'NAME'}",
        name=where,
    )


def _flows(module: ModuleType) -> list[str]:
    """List the names of a module's flows, and of its callables annotated to return one."""
    return [name for name, value in vars(module).items() if isinstance(value, Flow) or _makes_flow(value)]


def _makes_flow(value: object) -> bool:
    if not callable(value):
        return False
    called = value if isinstance(value, FunctionType) else type(value).__call__
    if not isinstance(called, FunctionType):
        return False
    try:
        return typing.get_type_hints(called).get("return") is Flow
    except (NameError, TypeError, AttributeError, SyntaxError):
        return False


def _calling(function: object, where: str, attribute: str) -> object:
    assert callable(function)
    try:
        return function()
    except PenstockError:
        raise
    except Exception as error:
        raise _failed(f"{where}:{attribute}", error) from error


def _failed(what: str, error: Exception) -> FlowNotFound:
    """Build the error for user code that raised while loading, showing the last line within that code."""
    trace = error.__traceback__
    location: SourceLocation | None = None
    here = str(Path(__file__))
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file != here and not file.startswith("<frozen"):
            location = SourceLocation(file, trace.tb_lineno, trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        location = SourceLocation(error.filename, error.lineno)
    return FlowNotFound(
        f"{what} cannot be loaded: {type(error).__name__}: {error}",
        where=[location] if location else [],
        fix=_way_out(error),
        name=what,
    )


def _way_out(error: Exception) -> str:
    if isinstance(error, ImportError) and "relative import" in str(error):
        return "name a module of a package as one: package.module:flow"
    if isinstance(error, ModuleNotFoundError):
        return (
            f"install {error.name}, or call the command in the folder that holds it: modules are looked for "
            f"beside the file, in {Path.cwd()}, and where Python looks"
        )
    return "run it with Python alone to see the whole traceback"
