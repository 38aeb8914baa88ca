"""Every recipe works: its blocks of code, run as one program against a broker, print what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["penstock.testing.fixtures"]
FIRST_PAGE = Path(__file__).parents[1] / "docs" / "README.md"
RECIPES = sorted(FIRST_PAGE.with_name("recipes").glob("*.md"))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def extraction() -> str:
    """The command of the first page that makes a program of a recipe."""
    (found,) = re.findall(r"^sed .*$", FIRST_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return found


def test_there_are_recipes() -> None:
    assert len(RECIPES) >= 5


@pytest.mark.tier("test")
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_the_code_of_a_recipe_prints_what_the_page_says(
    recipe: Path, penstock_server: str, tmp_path: Path
) -> None:
    page = recipe.read_text(encoding="utf-8")
    program = tmp_path / f"{recipe.stem}.py"
    told = extraction().replace("docs/recipes/orders.md", str(recipe))
    subprocess.run(told.replace("orders.py", str(program)), shell=True, check=True)
    done = subprocess.run(
        [sys.executable, program.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PENSTOCK_SERVER": penstock_server},
    )
    assert done.returncode == 0, done.stderr
    (said,) = blocks(page, "text")
    assert done.stdout == said


@pytest.mark.tier("test")
def test_the_first_message_of_the_first_hour_comes(penstock_server: str, tmp_path: Path) -> None:
    page = FIRST_PAGE.with_name("first-hour.md").read_text(encoding="utf-8")
    environment = {**os.environ, "PENSTOCK_SERVER": penstock_server}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    (typed,), (program,) = blocks(page, "sh"), blocks(page, "py")
    # Those two go on until they are told to end.
    lines = [one for one in typed.splitlines() if not re.match(r"penstock (serve|top)\b", one)]
    assert len(lines) == 5
    (tmp_path / "first.py").write_text(program, encoding="utf-8")
    said = []
    for line in (*lines, "python first.py"):
        done = subprocess.run(
            line,
            shell=True,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, (line, done.stderr)
        said.append(done.stdout)
    assert ["a lamp" in one for one in said] == [False, False, True, True, False, False]
    assert said[-1] == 'b\'{"item":"lamp"}\' 1\n'
