"""Every recipe works: its blocks of code, run as one program against a broker, print what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["penstock.testing.fixtures"]
RECIPES = sorted((Path(__file__).parents[1] / "docs" / "recipes").glob("*.md"))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_there_are_recipes() -> None:
    assert len(RECIPES) >= 5


@pytest.mark.tier("test")
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_the_code_of_a_recipe_prints_what_the_page_says(
    recipe: Path, penstock_server: str, tmp_path: Path
) -> None:
    page = recipe.read_text(encoding="utf-8")
    program = tmp_path / f"{recipe.stem}.py"
    program.write_text("\n\n".join(blocks(page, "python")), encoding="utf-8")
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
