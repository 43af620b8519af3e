"""Loader of flows named by a command: `module:flow`, `path/to/file.py:flow`, `query.sql`, `query.plan`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import typing
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import NoReturn

from headrace.errors import FlowNotFound, HeadraceError, SourceLocation
from headrace.flow.flow import Flow

_PLANNED = (".sql", ".plan")
"""Endings of files that hold a query or its plan."""


def load_flow(name: str) -> Flow:
    """Load a flow, or call the function without arguments that returns one.

    Modules and their imports are also found in the current folder, as with `python -m`. Without `:flow`, the
    module must hold exactly one flow. A file of SQL is planned by Spark, unless its plan is beside it.
    Raises `FlowNotFound`, and whatever building the flow raises.
    """
    where, attribute = split_name(name)
    if where.endswith(_PLANNED):
        return _load_query(Path(where))
    module = _load(where)
    return _flow_at(module, where, attribute or _only_flow(module, where))


def load_flows(name: str) -> Iterator[Flow | HeadraceError]:
    """Load all flows that `name` may mean, each as the flow or as the error raised while it was built.

    Without `:flow`, these are all flows of the module. If the module itself fails, its error comes first,
    then the flows that were complete by then.
    """
    where, attribute = split_name(name)
    if attribute or where.endswith(_PLANNED):
        yield _outcome(partial(load_flow, name))
        return
    try:
        module = _load(where)
    except HeadraceError as error:
        yield error
        if where.endswith(".py") and error.where:
            yield from _complete_flows(sys.modules.get(module_name(Path(where).resolve())), where)
        return
    for flow in _flows(module):
        yield _outcome(partial(_flow_at, module, where, flow))


def split_name(name: str) -> tuple[str, str]:
    """Split into a file or module, and the name of a flow. File names may contain colons."""
    where, colon, attribute = name.rpartition(":")
    if not colon or Path(name).is_file() or name.endswith((".py", *_PLANNED)):
        return name, ""
    return where, attribute


def _outcome(load: Callable[[], Flow]) -> Flow | HeadraceError:
    try:
        return load()
    except HeadraceError as error:
        return error


def _complete_flows(module: ModuleType | None, where: str) -> Iterator[Flow | HeadraceError]:
    """Load the flows of a module that failed, except the last one, which may be incomplete.

    module: None if it was its package that failed.
    """
    if module is None:
        return
    built = [name for name, value in vars(module).items() if _is_flow(value)]
    for flow in _flows(module):
        if flow in built[-1:]:
            continue
        outcome = _outcome(partial(_flow_at, module, where, flow))
        # A function may miss what the module would have defined later.
        if not isinstance(outcome, FlowNotFound):
            yield outcome


@contextmanager
def separate_imports() -> Generator[None]:
    """On exit, remove modules imported from folders added to `sys.path` inside the block.

    So files of different folders may each import a neighbour of the same name, and a file that is called like
    an imported module does not replace it for good.
    """
    path, modules = list(sys.path), dict(sys.modules)
    try:
        yield
    finally:
        added = [Path(folder) for folder in sys.path if folder not in path]
        for name in sys.modules.keys() - modules.keys():
            if any(_lies_in(folder, name) for folder in added):
                del sys.modules[name]
        sys.modules.update(modules)
        sys.path[:] = path


@contextmanager
def without_hard_exits() -> Generator[None]:
    """Make `os._exit` raise `SystemExit` in this process, so that a file cannot stop loading the others."""
    exit_process, loading = os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != loading:  # a forked process
            exit_process(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = exit_process


def _lies_in(folder: Path, module: str) -> bool:
    file, top = getattr(sys.modules[module], "__file__", None), module.partition(".")[0]
    return (
        file is not None
        and Path(file).is_relative_to(folder)
        and Path(file).relative_to(folder).parts[0]
        in (
            top,
            f"{top}.py",
        )
    )


def _load_query(path: Path) -> Flow:
    """Load a query or a saved plan."""
    from headrace.queries.query_file import load_flow as load_plan
    from headrace.queries.query_file import load_query

    return load_query(path) if path.suffix == ".sql" else load_plan(path)


def _load(where: str) -> ModuleType:
    return _load_file(Path(where)) if where.endswith(".py") else _load_module(where)


def _load_module(where: str) -> ModuleType:
    _search_first(Path.cwd())
    if "" in where.split("."):
        raise FlowNotFound(
            f"{where!r} is not the name of a module",
            fix="write module:flow or path/to/file.py:flow",
            name=where,
        )
    try:
        return importlib.import_module(where)
    except (HeadraceError, KeyboardInterrupt):
        raise
    except BaseException as error:
        missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if missing and (where == missing or where.startswith(f"{missing}.")):
            raise FlowNotFound(
                f"there is no module {where!r}",
                why=f"Searched: {Path.cwd()}, and Python's path.",
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
    try:
        return _load_in_package(path.resolve())
    except (HeadraceError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise _failed(str(path), error) from error


def _load_in_package(file: Path) -> ModuleType:
    package, root = _package_of(file)
    if package:
        # Before the file's own folder is searched, which may hold a module named like the package.
        _search_first(root)
        _import_package(package)
    _search_first(file.parent)
    spec = importlib.util.spec_from_file_location(module_name(file), file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _import_package(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A module that is no package has the name, such as one of Python's own: the file is loaded alone.
        if not f"{name}.".startswith(f"{error.name}."):
            raise


def _package_of(file: Path) -> tuple[str, Path]:
    """Return the dotted name of a file's package ("" if none), and the folder to import it from."""
    names: list[str] = []
    folder = file.parent
    while folder.name.isidentifier() and (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names), folder


def module_name(file: Path) -> str:
    """Return the module name for loading a file: qualified by its package, or standalone.

    A package does not count if another module hides it, such as one of Python's own.
    """
    package, _ = _package_of(file)
    loaded = getattr(sys.modules.get(package), "__file__", None)
    in_package = loaded is not None and Path(loaded).resolve() == file.parent / "__init__.py"
    return f"{package}.{file.stem}" if in_package else file.stem


def _search_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _flow_at(module: ModuleType, where: str, attribute: str) -> Flow:
    found = _attribute(module, where, attribute)
    if not isinstance(found, Flow) and callable(found):
        if required := _required_parameters(found):
            raise FlowNotFound(
                f"{attribute!r} of {where} needs arguments: {', '.join(required)}",
                fix="name a Flow, or a function without arguments that returns one",
                name=f"{where}:{attribute}",
            )
        found = _calling(found, where, attribute)
        if inspect.iscoroutine(found):
            found.close()
    if not isinstance(found, Flow):
        raise FlowNotFound(
            f"{attribute!r} of {where} is {type(found).__name__}, not a flow",
            fix="name a Flow, or a function without arguments that returns one",
            name=f"{where}:{attribute}",
        )
    return found


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


def _only_flow(module: ModuleType, where: str) -> str:
    flows = _flows(module)
    if len(flows) == 1:
        return flows[0]
    raise FlowNotFound(
        f"{where} has {len(flows) or 'no'} flows" + (f": {', '.join(flows)}" if flows else ""),
        fix=f"say which one: {where}:{flows[0] if flows else 'NAME'}",
        name=where,
    )


def _flows(module: ModuleType) -> list[str]:
    """List the names of a module's flows, and of its callables without arguments annotated to return one."""
    return [name for name, value in vars(module).items() if _is_flow(value) or _makes_flow(value)]


def _is_flow(value: object) -> bool:
    return issubclass(type(value), Flow)  # `isinstance` would ask the value itself


def _makes_flow(value: object) -> bool:
    if not callable(value):
        return False
    called = value if isinstance(value, FunctionType) else type(value).__call__
    if not isinstance(called, FunctionType):
        return False
    try:
        return typing.get_type_hints(called).get("return") is Flow and not _required_parameters(value)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return False


def _required_parameters(function: Callable[..., object]) -> list[str]:
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some functions written in C do not say
        return []
    return [each.name for each in parameters if each.default is each.empty and each.kind not in optional]


def _calling(function: object, where: str, attribute: str) -> object:
    assert callable(function)
    try:
        return function()
    except (HeadraceError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise _failed(f"{where}:{attribute}", error) from error


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # a class of the user's, whose text cannot be made
        return type(error).__name__


def _failed(what: str, error: BaseException) -> FlowNotFound:
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
        f"{what} cannot be loaded: {_said(error)}",
        where=[location] if location else [],
        fix=_way_out(error),
        name=what,
    )


def _way_out(error: BaseException) -> str:
    if isinstance(error, ImportError) and "relative import" in str(error):
        return "make its folder a package by an __init__.py, or name it as package.module:flow"
    if isinstance(error, ModuleNotFoundError):
        return (
            f"install {error.name}, or run the command in its folder: modules are searched "
            f"beside the file, in {Path.cwd()}, and on Python's path"
        )
    return "run it with Python alone to see the whole traceback"
