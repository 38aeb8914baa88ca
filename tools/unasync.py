"""Generates the synchronous client from the asynchronous one.

    python tools/unasync.py           write src/penstock/client/synchronous
    python tools/unasync.py --check   exit code 1 if a file there is not what it would write

`connection.py`, `io.py` and `worker_pool.py` wait by other means in threads than in asyncio, and are written by hand
for both; `tls_stream.py` is for threads alone. Every other module is the text of its twin, changed by the rules below
and formatted by ruff.
"""

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parent.parent / "src/penstock/client"
MODULES = (
    "connector",
    "prefetch",
    "admin",
    "schedules",
    "schemas",
    "client",
    "producer",
    "ack_batcher",
    "member",
    "consumer",
    "worker",
    "staged_work",
    "transactions",
    "stagings",
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
HEAD = "# Made from ../asynchronous/{name}.py by tools/unasync.py; change that one.\n"


def generated(name: str) -> str:
    """Returns the text that a module of the synchronous client must have."""
    text = CLIENT.joinpath("asynchronous", f"{name}.py").read_text(encoding="utf-8")
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    # Imports move: AsyncIterator sorts before Callable, Iterator after it.
    text = _ruff(["check", "--select", "I", "--fix", "--quiet"], HEAD.format(name=name) + text)
    return _ruff(["format"], text)


def _ruff(arguments: list[str], text: str) -> str:
    file = str(CLIENT / "synchronous" / "generated.py")
    done = subprocess.run(  # noqa: S603 - our own tool, on our own text
        [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", file, "-"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        cwd=CLIENT,
    )
    return done.stdout


def stale() -> list[Path]:
    """Returns the modules whose text differs from the generated one."""
    found = []
    for name in MODULES:
        file = CLIENT / "synchronous" / f"{name}.py"
        if not file.exists() or file.read_text(encoding="utf-8") != generated(name):
            found.append(file)
    return found


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        found = stale()
        for file in found:
            print(f"{file.name} is not generated from its source: run tools/unasync.py")
        return 1 if found else 0
    for name in MODULES:
        CLIENT.joinpath("synchronous", f"{name}.py").write_text(generated(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
