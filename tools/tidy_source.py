"""The files that tidy looks at, parsed."""

import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = "penstock"
AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


class Finding(NamedTuple):
    where: str  # "path" or "path:function": what an exception has to name
    line: int
    rule: str
    text: str
    size: int = 1

    def __str__(self) -> str:
        path, _, function = self.where.partition(":")
        return f"{path}:{self.line}: {self.rule}: {function + ': ' if function else ''}{self.text}"


@dataclass(frozen=True, slots=True)
class Source:
    """One file, parsed. `path` is relative to the root and starts with src, bench, tools or tests."""

    path: str
    text: str
    nodes: dict[type[ast.AST], list[Any]]  # by their kind, of which every check asks for one or two
    functions: list[tuple[str, AnyFunction]]

    @property
    def area(self) -> str:
        return self.path.split("/", 1)[0]

    @property
    def words(self) -> tuple[str, ...]:
        """The dotted name as a tuple: src/penstock/log/index.py is (penstock, log, index)."""
        return Path(self.path).with_suffix("").parts[1:]

    def finding(self, rule: str, line: int, text: str) -> Finding:
        """Returns a finding at a line, under the innermost function that holds the line."""
        owner = [name for name, node in self.functions if node.lineno <= line <= end_of(node)]
        where = f"{self.path}:{max(owner, key=len)}" if owner else self.path
        return Finding(where, line, rule, text)


def parse(path: str, text: str) -> Source:
    tree = ast.parse(text, path)
    nodes: dict[type[ast.AST], list[Any]] = defaultdict(list)
    for node in nodes_in(tree):
        nodes[type(node)].append(node)
    return Source(path, text, nodes, list(functions_in(tree)))


def nodes_in(*trees: ast.AST) -> list[ast.AST]:
    """Returns what `ast.walk` does for each tree, in half its time."""
    nodes = list(trees)
    for node in nodes:
        for name in node._fields:
            field = getattr(node, name, None)
            if isinstance(field, ast.AST):
                nodes.append(field)
            elif isinstance(field, list):
                nodes += [each for each in field if isinstance(each, ast.AST)]
    return nodes


def functions_in(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, AnyFunction]]:
    for child in blocks_in(node):
        inner = prefix
        if isinstance(child, AnyFunction | ast.ClassDef):
            inner = f"{prefix}{child.name}."
        if isinstance(child, AnyFunction):
            yield f"{prefix}{child.name}", child
        yield from functions_in(child, inner)


def blocks_in(node: ast.AST) -> Iterator[ast.AST]:
    """Returns the statements right inside, and the nodes that hold statements in turn."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        inner = getattr(node, name, None)
        if isinstance(inner, list):
            yield from inner


def end_of(node: ast.stmt) -> int:
    assert node.end_lineno is not None, "a parsed statement knows where it ends"
    return node.end_lineno


def dotted(node: ast.AST) -> str:
    """Returns `a.b.c` as written, or an empty string for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def calls_in(source: Source) -> Iterator[tuple[str, ast.Call]]:
    for node in source.nodes[ast.Call]:
        yield dotted(node.func), node


def imports_in(source: Source) -> Iterator[tuple[int, str]]:
    package = source.words[:-1]
    for node in source.nodes[ast.Import]:
        yield from ((node.lineno, alias.name) for alias in node.names)
    for node in source.nodes[ast.ImportFrom]:
        base = package[: len(package) - node.level + 1] if node.level else ()
        stem = ".".join([*base, *([node.module] if node.module else [])])
        yield node.lineno, stem
        if stem == PACKAGE or not node.module:
            yield from ((node.lineno, f"{stem}.{alias.name}") for alias in node.names)


def comments_in(source: Source) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
