"""The map for maintainers names only files that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "penstock"
IN_CODE_TYPE = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/?)`")
PLAIN = re.compile(r"(?<![\w/`(])((?:docs|tests|tools)/[\w./-]+\w)")


def named_paths() -> list[str]:
    page = ROOT.joinpath("docs", "architecture.md").read_text(encoding="utf-8")
    text = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    words = {*IN_CODE_TYPE.findall(text), *PLAIN.findall(text)}
    return sorted(word for word in words if "/" in word or word.endswith((".py", ".md", ".json")))


def test_every_path_of_the_page_is_there():
    named = named_paths()
    assert len(named) > 80
    # A name without a directory is that of a file in the package that the sentence is about.
    files = {path.name for path in SOURCE.rglob("*.py")}
    known = (path for path in named if "/" in path or path not in files)
    assert [
        path for path in known if not any((top / path).exists() for top in (ROOT, SOURCE))
    ] == []
