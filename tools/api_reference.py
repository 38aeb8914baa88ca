"""Writes the public names of a module as Markdown, from their docstrings: what `make docs` puts into pages of docs/api.

    python tools/api_reference.py penstock.client     print it

Public is what a package exports on purpose, `from .place import Name as Name` or `__all__` in its `__init__.py`, and a
name without an underscore that it defines itself. A class has its public methods and properties, also inherited ones.
"""

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, is_typeddict

from penstock import errors
from penstock.server.http.statuses import status_of_kind

PACKAGE = "penstock"
_QUALIFIED = re.compile(
    r"\b(?:penstock|collections\.abc|typing|datetime|pathlib|concurrent|msgspec)\.(?:\w+\.)*"
)
_LINE_MAX = 88


def exported(module: ModuleType) -> list[str]:
    """Returns the names that a module means others to use, in alphabetical order; twins for asyncio come last."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    names: set[str] = set(getattr(module, "__all__", ()))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {one.name for one in node.names if one.asname == one.name}
    for node in tree.body:
        # What only type checkers see (`open = open_queue`) is exported, too.
        inner = node.body if isinstance(node, ast.If) else [node]
        for one in inner:
            if isinstance(one, ast.ClassDef | ast.FunctionDef):
                names.add(one.name)
            elif isinstance(one, ast.Assign):
                names |= {target.id for target in one.targets if isinstance(target, ast.Name)}
    public = (name for name in names if not name.startswith("_"))
    return sorted(public, key=lambda name: (name.startswith("Async"), name))


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yields the public functions and properties of a class in the order in which they are written, its own first."""
    seen: set[str] = set()
    for parent in kind.__mro__:
        if not parent.__module__.startswith(PACKAGE):
            continue
        for name, value in vars(parent).items():
            is_shown = inspect.isfunction(value) or isinstance(
                value, property | classmethod | staticmethod
            )
            if is_shown and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, value


def undocumented(module_name: str) -> list[str]:
    """Returns the public names of a module that say nothing about themselves."""
    module = import_module(module_name)
    found = []
    for name in exported(module):
        value = getattr(module, name)
        if not inspect.isclass(value) and not inspect.isroutine(value):
            continue  # An alias of a type, or a module of its own: neither can have a docstring.
        if not inspect.getdoc(value):
            found.append(f"{module_name}.{name}")
        if inspect.isclass(value):
            found += [
                f"{module_name}.{name}.{member}"
                for member, one in members(value)
                if not inspect.getdoc(one)
            ]
    return found


def markdown(module_name: str) -> str:
    """Returns the reference of a module: a second-level heading for each name, a third-level one for each method."""
    module = import_module(module_name)
    parts = [inspect.getdoc(module) or ""]
    if module is errors:
        return "\n\n".join([*parts, _error_table()]) + "\n"
    for name in exported(module):
        value = getattr(module, name)
        if inspect.ismodule(value):
            continue
        if inspect.isclass(value):
            parts += _class(name, value)
        elif inspect.isroutine(value):
            parts += [f"## `{name}()`", _code(signature(name, value)), inspect.getdoc(value) or ""]
        else:
            parts += [f"## `{name}`", _code(f"{name} = {_plain(str(value))}")]
    return "\n\n".join(part for part in parts if part) + "\n"


def _error_table() -> str:
    lines = ["| error | code | status over HTTP | can a retry help |", "|---|---|---|---|"]
    for name in exported(errors):
        kind = getattr(errors, name)
        if kind is not errors.PenstockError:  # The base: no error has only this.
            retry = "yes" if kind.retriable else "no"
            lines.append(f"| `{name}` | `{kind.code}` | {status_of_kind(kind)} | {retry} |")
    return "\n".join(lines)


def _class(name: str, kind: type) -> list[str]:
    parts = [f"## `{name}`", _code(signature(f"class {name}", kind)), inspect.getdoc(kind) or ""]
    plain = name.removeprefix("Async")
    if plain != name:
        return [
            *parts,
            f"It has the methods of `{plain}`; those that talk to the server are awaited.",
        ]
    for member, value in members(kind):
        if isinstance(value, property):
            annotation = inspect.signature(value.fget).return_annotation if value.fget else Any
            parts += [f"### `{name}.{member}`", _code(f"{member}: {_annotation(annotation)}")]
        else:
            function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            parts += [f"### `{name}.{member}()`", _code(signature(member, function))]
        parts.append(inspect.getdoc(value) or "")
    return parts


def signature(name: str, function: Callable[..., Any]) -> str:
    """Returns how a function or class is called, over several lines if it is long."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return name
    shown = [one for one in found.parameters.values() if one.name not in {"self", "cls"}]
    written, is_keyword_only = [], False
    for one in shown:
        if one.kind is one.KEYWORD_ONLY and not is_keyword_only:
            written.append("*")
        is_keyword_only = is_keyword_only or one.kind in {one.KEYWORD_ONLY, one.VAR_POSITIONAL}
        written += _options(one) if one.kind is one.VAR_KEYWORD else [_plain(str(one))]
    has_answer = found.return_annotation is not found.empty and not name.startswith("class ")
    answer = (
        _plain(f" -> {inspect.formatannotation(found.return_annotation)}") if has_answer else ""
    )
    line = f"{name}({', '.join(written)}){answer}"
    if len(line) <= _LINE_MAX:
        return line
    return "\n".join([f"{name}(", *(f"    {one}," for one in written), f"){answer}"])


def _options(parameter: inspect.Parameter) -> list[str]:
    """Returns the keywords that a `**` parameter stands for, if its annotation names them."""
    for kind in get_args(parameter.annotation):
        if is_typeddict(kind):
            hints = inspect.get_annotations(kind)
            return [f"{name}: {_annotation(one)} = ..." for name, one in hints.items()]
    return [_plain(str(parameter))]


def _annotation(annotation: Any) -> str:
    return _plain(inspect.formatannotation(annotation))


def _plain(text: str) -> str:
    """Returns code with the last part of qualified names, and without quotes around names of types."""
    return re.sub(r"(: |-> )'([A-Z]\w+)'", r"\1\2", _QUALIFIED.sub("", text))


def _code(text: str) -> str:
    return f"```py\n{text}\n```"


if __name__ == "__main__":
    print("\n".join([markdown(name) for name in sys.argv[1:]]))
