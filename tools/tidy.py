"""Fails the build when the code drifts from its rules. Standard library only.

Reads src/penstock, bench, tools and tests below the directory given (or the one above this file) and prints one
line for each problem:

    tiers         an import points up or sideways, or a package has no tier
    purity        the core imports a clock, a file or a thread, or calls open()
    file-lines, function-lines, parameters        too long
    broad-except  catches everything and goes on
    kept-error    an error is kept, or raised from where it was kept, and not `fresh()`: its frames stay with it
    command-table  a table or list of commands outside of api and the handlers: such facts stand on their classes
    duplicate     a function that another one repeats, names of variables aside
    name          a class or file with a name that says nothing
    silenced      a check switched off without the reason on the line
    unfinished    work left for later
    skip          a test switched off without a reason
    unsafe        bytes or text turned into code

An exception is an entry in tools/tidy_exceptions.toml with a reason. That list only shrinks: an entry
that is not needed any more, or whose limit could be lower, is a problem itself.
"""

import ast
import gc
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidy_source import (
    PACKAGE,
    AnyFunction,
    Finding,
    Source,
    blocks_in,
    calls_in,
    comments_in,
    dotted,
    end_of,
    imports_in,
    nodes_in,
    parse,
)

TIERS = (  # Lowest first. Packages on one line are siblings: they never import each other.
    {"model", "errors", "ports", "config"},
    {"api", "codec", "kernel"},
    {"log", "consensus"},
    {
        "groups",
        "delivery",
        "transactions",
        "schedules",
        "schemas",
        "journeys",
        "tenancy",
        "cluster",
        "replication",
    },
    {"contexts"},
    {"broker", "client", "observability"},
    {"runtime", "sim"},
    {"server", "embedded"},
    {"console", "spark", "testing"},
    {"cli"},
)
TIER_OF = {package: tier for tier, packages in enumerate(TIERS) for package in packages}
CORE = {"broker"}.union(*TIERS[:4])
CLOCKS_AND_CHANCE = {"datetime", "random", "secrets", "time", "uuid"}
FILES_AND_NETWORK = {"fcntl", "io", "logging", "mmap", "os", "pathlib", "socket", "subprocess"}
CONCURRENCY = {"asyncio", "multiprocessing", "threading"}
IMPURE = CLOCKS_AND_CHANCE | FILES_AND_NETWORK | CONCURRENCY
WORDS = TIERS[0]
OUTSIDERS = {  # Packages that live beside the broker, never inside it, and all that they may see.
    "client": WORDS | {"api", "codec", "contexts"},
    "spark": WORDS | {"api", "codec", "client", "contexts", "log", "runtime"},
    "console": (WORDS - {"ports"}) | {"api", "client"},
}

# The parts of a package that its other files may not import.
UPPER_PARTS = {"log": "doctor"}
# What a part of a package may not import of it: whatever is above.
ABOVE = {("broker", "partition"): {"catalogue", "groups", "handlers", "memberships", "node"}}

FILE_LINES_MAX = 550
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 5
# Below six lines two functions are equal by chance more often than by copying.
DUPLICATE_LINES_MIN = 6
REASON_WORDS_MIN = 2
# A copy that a tool makes, and a test compares with its source, cannot drift.
MADE_BY_TOOL = "# Made from ../asynchronous/"

EMPTY_SUFFIXES = ("Manager", "Helper", "Handler", "Processor", "Util", "Impl", "Data", "Info")
EMPTY_FILE_NAME = re.compile(r"(.*_)?(common|core|helpers?|managers?|misc|utils?)")
UNSAFE_MODULES = {"pickle", "marshal", "shelve", "dill"}
UNSAFE_CALLS = {"eval", "exec", "yaml.load", "yaml.unsafe_load"}
DIRECTIVE = re.compile(
    r"type:\s*ignore(\[[^\]]*\])?|(ruff:\s*)?noqa(:\s*[A-Z]+[0-9]+([,\s]+[A-Z]+[0-9]+\b)*)?"
)
# Methods that keep what they are given.
KEEPING = {"append", "add", "put", "set_exception", "set_result", "setdefault"}
LATER = re.compile(r"\b(TODO|FIXME|XXX)\b")
BY_SIZE = {"file-lines", "function-lines", "parameters"}

HANDLERS = ("broker", "handlers")
DISPLAYS = (ast.Dict, ast.Set, ast.List, ast.Tuple)
COMMANDS_IN_A_TABLE = 3


def check_tiers(source: Source) -> Iterator[Finding]:
    here = source.words[1]
    if here in {"__init__", "__main__"}:
        return
    if here not in TIER_OF:
        yield Finding(source.path, 1, "tiers", f"{here!r} has no tier")
        return
    for line, name in imports_in(source):
        top, _, rest = name.partition(".")
        there = rest.split(".")[0]
        upper = UPPER_PARTS.get(here)
        if f"{rest}.".startswith(f"{here}.{upper}.") and source.words[2:3] != (upper,):
            yield source.finding("tiers", line, f"{here} may not import its own {upper}")
        part = source.words[2] if there == here else ""
        if rest.partition(".")[2] in ABOVE.get((here, part), ()):
            yield source.finding("tiers", line, f"{here}/{part} may not import {rest}")
        if top != PACKAGE or there == here or there not in TIER_OF:
            continue
        shares_words = {here, there} <= WORDS
        points_down = TIER_OF[there] < TIER_OF[here] or shares_words
        if not points_down or there not in OUTSIDERS.get(here, TIER_OF):
            yield source.finding("tiers", line, f"{here} may not import {there}")


def check_purity(source: Source) -> Iterator[Finding]:
    if source.words[1] not in CORE:
        return
    in_memory = {node.lineno for node in source.nodes[ast.ImportFrom] if is_memory_only(node)}
    # Where what users write is read, a datetime is a value and not a clock.
    banned = IMPURE - {"datetime"} if source.words[1] == "api" else IMPURE
    for line, name in imports_in(source):
        if (top := name.split(".")[0]) in banned and line not in in_memory:
            yield source.finding("purity", line, f"the core may not import {top}")
    for name, call in calls_in(source):
        if name == "open":
            yield source.finding("purity", call.lineno, "the core may not open files")


def is_memory_only(node: ast.ImportFrom) -> bool:
    """Whether it imports files that are none: bytes in memory, to be read on."""
    return node.module == "io" and all(alias.name == "BytesIO" for alias in node.names)


def check_sizes(source: Source) -> Iterator[Finding]:
    lines = len(source.text.splitlines())
    if lines > FILE_LINES_MAX:
        text = f"{lines} lines, the most is {FILE_LINES_MAX}"
        yield Finding(source.path, 1, "file-lines", text, lines)
    for name, node in source.functions:
        lines = end_of(node) - node.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            text = f"{lines} lines, the most is {FUNCTION_LINES_MAX}"
            yield Finding(f"{source.path}:{name}", node.lineno, "function-lines", text, lines)


def check_parameters(source: Source) -> Iterator[Finding]:
    for name, node in source.functions:
        given = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
        count = len(given) - (given[:1] in (["self"], ["cls"]))
        if count > PARAMETERS_MAX:
            text = f"{count} positional parameters, the most is {PARAMETERS_MAX}"
            yield Finding(f"{source.path}:{name}", node.lineno, "parameters", text, count)


def is_broad(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(map(is_broad, kind.elts))
    return kind is None or dotted(kind) in {"Exception", "BaseException"}


def check_broad_excepts(source: Source) -> Iterator[Finding]:
    """A handler that ends by raising again only cleans up, and may be broad."""
    for node in source.nodes[ast.ExceptHandler]:
        if is_broad(node.type):
            last = node.body[-1]
            if not (isinstance(last, ast.Raise) and last.exc is None):
                yield source.finding("broad-except", node.lineno, "catches everything")
    for name, call in calls_in(source):
        if name.endswith("suppress") and any(map(is_broad, call.args)):
            yield source.finding("broad-except", call.lineno, "suppresses everything")


def parts_of(value: ast.AST | None) -> Iterator[ast.AST]:
    """Returns an expression, and of a choice or a collection what it is made of."""
    if isinstance(value, ast.IfExp):
        yield from (*parts_of(value.body), *parts_of(value.orelse))
    elif isinstance(value, ast.BoolOp | ast.Tuple | ast.List):
        for part in value.values if isinstance(value, ast.BoolOp) else value.elts:
            yield from parts_of(part)
    elif isinstance(value, ast.BinOp):
        yield from (*parts_of(value.left), *parts_of(value.right))
    elif value is not None:
        yield value


def kept_in(node: ast.AST) -> Iterator[ast.AST]:
    """Returns what a statement or a call keeps, or hands back."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return):
        yield from parts_of(node.value)
    elif isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in KEEPING:
        for argument in node.args:
            yield from parts_of(argument)


def check_kept_errors(source: Source) -> Iterator[Finding]:
    """A caught error is in its own handler only; what is raised is made there, or the error of the handler.

    Outside of the broker the frames are those of a caller, who may keep an error as well.
    """
    if source.words[1] in {"cli", "client", "sim", "spark"}:
        return
    caught: set[tuple[str, int]] = set()
    for handler in source.nodes[ast.ExceptHandler]:
        for node in nodes_in(*handler.body):
            caught.add((handler.name or "", node.lineno if isinstance(node, ast.Raise) else 0))
            if any(
                isinstance(kept, ast.Name) and kept.id == handler.name for kept in kept_in(node)
            ):
                yield source.finding("kept-error", handler.lineno, f"keeps {handler.name}")
    for node in source.nodes[ast.Raise]:
        for error in parts_of(node.exc):
            name = dotted(error).rpartition(".")[2]
            is_made = isinstance(error, ast.Call) or name.lstrip("_")[:1].isupper()
            if not is_made and (name, node.lineno) not in caught:
                yield source.finding("kept-error", node.lineno, f"raises {ast.unparse(error)}")


def check_names(source: Source) -> Iterator[Finding]:
    for word in source.words:
        if EMPTY_FILE_NAME.fullmatch(word):
            yield Finding(source.path, 1, "name", f"{word!r} says nothing about what is inside")
    # In protocol packages a handler is the word of the protocols' own documents.
    at_door = source.path.startswith(f"src/{PACKAGE}/server/")
    suffixes = tuple(each for each in EMPTY_SUFFIXES if not (at_door and each == "Handler"))
    for node in source.nodes[ast.ClassDef]:
        if node.name.endswith(suffixes):
            yield source.finding("name", node.lineno, f"{node.name} says nothing; name the thing")


def check_comments(source: Source) -> Iterator[Finding]:
    if not (LATER.search(source.text) or DIRECTIVE.search(source.text)):
        return
    for line, comment in comments_in(source):
        if LATER.search(comment):
            yield source.finding("unfinished", line, comment.strip("# "))
        remainder, directives = DIRECTIVE.subn("", comment)
        if directives and len(re.findall(r"[A-Za-z]+", remainder)) < REASON_WORDS_MIN:
            yield source.finding("silenced", line, f"{comment} gives no reason")


def check_stubs(source: Source) -> Iterator[Finding]:
    for node in source.nodes[ast.Name]:
        if node.id == "NotImplementedError":
            yield source.finding("unfinished", node.lineno, "a stub may not be merged")


def check_skips(source: Source) -> Iterator[Finding]:
    called = {id(call.func): call for _, call in calls_in(source)}
    for node in source.nodes[ast.Attribute]:
        name = dotted(node)
        if not name.endswith(
            ("mark.skip", "mark.skipif", "mark.xfail", "pytest.skip", "pytest.xfail")
        ):
            continue
        call = called.get(id(node))
        has_reason = call and any(keyword.arg in {"reason", "msg"} for keyword in call.keywords)
        # Here the first argument is the reason; for skipif and mark.xfail it is a condition.
        takes_text = node.attr == "skip" or name.endswith("pytest.xfail")
        if not has_reason and not (takes_text and call and call.args):
            yield source.finding("skip", node.lineno, f"{name} gives no reason")


def check_unsafe(source: Source) -> Iterator[Finding]:
    for line, name in imports_in(source):
        if name.split(".")[0] in UNSAFE_MODULES:
            yield source.finding("unsafe", line, f"{name} runs what it reads")
    for name, call in calls_in(source):
        if name in UNSAFE_CALLS:
            yield source.finding("unsafe", call.lineno, f"{name}() runs what it is given")


class Shape(ast.NodeTransformer):
    """Gives equal names to what may differ between two copies of one function."""

    def __init__(self, function: AnyFunction) -> None:
        bound = [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]
        bound += [
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        self.names = {name: f"v{index}" for index, name in enumerate(dict.fromkeys(bound))}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg, node.annotation = self.names.get(node.arg, node.arg), None
        return node


def shape_of(function: AnyFunction) -> str:
    """Returns the function's code without its name, decorators, docstring, annotations and variable names."""
    copy = ast.parse(ast.unparse(function)).body[0]
    assert isinstance(copy, AnyFunction)
    copy.name, copy.decorator_list, copy.returns = "f", [], None
    if ast.get_docstring(copy) is not None:
        copy.body = copy.body[1:] or [ast.Pass()]
    return ast.unparse(Shape(copy).visit(copy))


def outline_of(node: ast.AST) -> Iterator[type[ast.AST]]:
    """Returns the kinds of the statements, in order: equal for equal shapes, and fast to compute."""
    for child in blocks_in(node):
        yield type(child)
        yield from outline_of(child)


def check_duplicates(sources: Iterable[Source]) -> Iterator[Finding]:
    alike: dict[tuple[type[ast.AST], ...], list[tuple[str, AnyFunction]]] = defaultdict(list)
    for source in sources:
        if source.text.startswith(MADE_BY_TOOL):
            continue
        for name, node in source.functions:
            if end_of(node) - node.lineno + 1 >= DUPLICATE_LINES_MIN:
                kinds = tuple(outline_of(node))
                has_docstring = ast.get_docstring(node, clean=False) is not None
                alike[kinds[has_docstring:]].append((f"{source.path}:{name}", node))
    for group in alike.values():
        if len(group) > 1:
            yield from duplicates_in(group)


def duplicates_in(functions: Iterable[tuple[str, AnyFunction]]) -> Iterator[Finding]:
    """Returns the copies. Only what has equal kinds of expressions, too, is written out to be compared."""
    alike: dict[tuple[type[ast.AST], ...], list[tuple[str, AnyFunction]]] = defaultdict(list)
    for where, node in functions:
        body = node.body[ast.get_docstring(node, clean=False) is not None :]
        alike[tuple(map(type, nodes_in(*body)))].append((where, node))
    first: dict[str, str] = {}
    for where, node in (each for group in alike.values() if len(group) > 1 for each in group):
        shape = shape_of(node)
        if shape.count("\n") + 1 < DUPLICATE_LINES_MIN:
            continue
        if (original := first.setdefault(shape, where)) != where:
            yield Finding(where, node.lineno, "duplicate", f"the same as {original}")


def check_command_tables(sources: Sequence[Source]) -> Iterator[Finding]:
    """What is known of a command stands on its class: there is no second table beside that of the handlers."""
    commands = {"Command"}
    classes = [
        node
        for source in sources
        if source.words[1] == "api"
        for node in source.nodes[ast.ClassDef]
    ]
    for _ in classes:
        known = len(commands)
        commands |= {node.name for node in classes if commands & set(map(name_of_base, node.bases))}
        if len(commands) == known:
            break
    for source in sources:
        if source.words[1] == "api" or source.words[1:3] == HANDLERS:
            continue
        for node in [each for kind in DISPLAYS for each in source.nodes[kind]]:
            items = node.keys if isinstance(node, ast.Dict) else node.elts
            count = sum(item is not None and name_of_base(item) in commands for item in items)
            if count >= COMMANDS_IN_A_TABLE and 2 * count > len(items):
                text = f"{count} commands: what holds for each of them stands on its class"
                yield source.finding("command-table", node.lineno, text)


def name_of_base(node: ast.AST) -> str:
    """Returns the last word of a name: `Command` of `api.command.Command[R]`."""
    return dotted(node.value if isinstance(node, ast.Subscript) else node).rpartition(".")[2]


EVERYWHERE = {"src", "bench", "tools", "tests"}
CHECKS: tuple[tuple[Callable[[Source], Iterator[Finding]], set[str]], ...] = (
    (check_tiers, {"src"}),
    (check_purity, {"src"}),
    (check_sizes, EVERYWHERE),
    (check_parameters, {"src", "bench", "tools"}),  # A test asks for its fixtures one by one.
    (check_broad_excepts, EVERYWHERE),
    (check_names, EVERYWHERE),
    (check_comments, EVERYWHERE),
    (check_stubs, EVERYWHERE),
    (check_skips, {"tests"}),
    (check_unsafe, EVERYWHERE),
    (check_kept_errors, {"src"}),
)


def read_sources(root: Path) -> Iterator[Source | Finding]:
    for area in (f"src/{PACKAGE}", "bench", "tools", "tests"):
        for file in sorted(root.joinpath(area).rglob("*.py")):
            path = file.relative_to(root).as_posix()
            try:
                yield parse(path, file.read_text(encoding="utf-8"))
            except SyntaxError as error:
                yield Finding(path, error.lineno or 1, "syntax", error.msg)


@dataclass(frozen=True, slots=True)
class Exemption:
    """An entry of the list: so much of one rule is tolerated at one place, and why."""

    where: str
    rule: str
    limit: int
    reason: str


def read_exemptions(file: Path) -> list[Exemption]:
    if not file.exists():
        return []
    entries = tomllib.loads(file.read_text(encoding="utf-8")).get("exception", [])
    exemptions = [Exemption(**entry) for entry in entries]
    for entry in exemptions:
        if len(entry.reason.split()) < REASON_WORDS_MIN or entry.limit < 1:
            raise ValueError(f"{file.name}: {entry.where} needs a reason and a limit of at least 1")
    return exemptions


def ratchet(findings: Iterable[Finding], exemptions: Iterable[Exemption]) -> Iterator[str]:
    """Returns findings beyond the exemptions, and exemptions that allow more than there is."""
    groups: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.where, finding.rule].append(finding)
    for entry in exemptions:
        found = groups.get((entry.where, entry.rule), [])
        sizes = [finding.size for finding in found]
        size = max(sizes, default=0) if entry.rule in BY_SIZE else sum(sizes)
        if size <= entry.limit:
            groups.pop((entry.where, entry.rule), None)
        if size < entry.limit:
            advice = f"lower its limit to {size}" if size else "remove it"
            yield f"exception for {entry.where}, {entry.rule}, allows more than is there: {advice}"
    for group in groups.values():
        yield from map(str, group)


def problems(root: Path) -> list[str]:
    read = list(read_sources(root))
    sources = [each for each in read if isinstance(each, Source)]
    findings = [each for each in read if isinstance(each, Finding)]
    for check, areas in CHECKS:
        findings += [each for source in sources if source.area in areas for each in check(source)]
    findings += check_duplicates(sources)
    findings += check_command_tables([each for each in sources if each.area == "src"])
    return sorted(ratchet(findings, read_exemptions(root / "tools/tidy_exceptions.toml")))


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    found = problems(root)
    print("\n".join([*found, f"tidy: {len(found)} problems"]))
    return 1 if found else 0


if __name__ == "__main__":
    gc.disable()  # It would look through the trees of all files again and again: a quarter of the time.
    sys.exit(main(sys.argv[1:]))
