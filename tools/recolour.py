"""Makes the synchronous client from the asynchronous one.

    python tools/recolour.py           write src/penstock/client/synchronous
    python tools/recolour.py --check   exit code 1 if a file there is not what it would write

What waits differs in more than colour and is written by hand for both: `io.py` and `crew.py`. Everything else is text,
changed by the rules below and put into form by ruff.
"""

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parent.parent / "src/penstock/client"
MODULES = (
    "pool",
    "ahead",
    "client",
    "outlet",
    "producer",
    "messenger",
    "member",
    "consumer",
    "worker",
)
RULES = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\baclosing\b", "closing"),
    (r"\baclose\b", "close"),
    (r"\bAwaitable\[None\]", "None"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basynchronous\b", "synchronous"),
    (r"  # noqa: ASYNC.*", ""),
    (r"\basyncio\.run\(main\(\)\)", "main()"),
)
HEAD = "# Made from ../asynchronous/{name}.py by tools/recolour.py; change that one.\n"


def to_sync(source: str) -> str:
    """The source with every await, and every name of the other colour, changed."""
    for pattern, replacement in RULES:
        source = re.sub(pattern, replacement, source)
    return source


def made(name: str) -> str:
    """What a module of the synchronous client has to be."""
    source = CLIENT.joinpath("asynchronous", f"{name}.py").read_text(encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff"]
    text = HEAD.format(name=name) + to_sync(source)
    # Imports move: AsyncIterator sorts before Callable, Iterator after it.
    sorted_text = _piped([*ruff, "check", "--select", "I", "--fix", "--quiet"], text)
    return _piped([*ruff, "format"], sorted_text)


def _piped(command: list[str], text: str) -> str:
    done = subprocess.run(  # noqa: S603 - our own tool, on our own text
        [*command, "--stdin-filename", str(CLIENT / "synchronous" / "made.py"), "-"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        cwd=CLIENT,
    )
    return done.stdout


def stale() -> list[Path]:
    """The modules that are not what they have to be."""
    found = []
    for name in MODULES:
        file = CLIENT / "synchronous" / f"{name}.py"
        if not file.exists() or file.read_text(encoding="utf-8") != made(name):
            found.append(file)
    return found


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        found = stale()
        print(
            "\n".join(
                f"{file.name} is not made from its source: run tools/recolour.py" for file in found
            )
        )
        return 1 if found else 0
    for name in MODULES:
        CLIENT.joinpath("synchronous", f"{name}.py").write_text(made(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
