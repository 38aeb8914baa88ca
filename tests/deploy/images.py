"""What the image does, without an image: its copies, commands and environment, in a clean directory, not as root."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = ROOT / "deploy" / "compose.yaml"
NOBODY = 65534
STOP_TIMEOUT_S = 60


_BECOME = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
# For a Python in root's home: may read what root reads, and write what is its own. Not every container has it to give.
_READ_ALL = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]


@cache
def as_nobody() -> tuple[str, ...]:
    """Returns the words before a command that have it run without the rights of root; none if we have none."""
    if os.getuid() != 0:
        return ()
    for words in ([*_BECOME, *_READ_ALL], _BECOME):
        try:
            done = subprocess.run(
                [*words, sys.executable, "-c", "import click"], capture_output=True
            )
        except FileNotFoundError:
            break
        if done.returncode == 0:
            return tuple(words)
    pytest.skip("no other user can run this Python here")


def own_directory(parent: Path, name: str) -> Path:
    """A new directory that belongs to the user who runs the image's steps."""
    made = parent / name
    made.mkdir()
    if os.getuid() == 0:
        os.chown(made, NOBODY, NOBODY)
    return made


def copied_tree(target: Path) -> None:
    """Copies what the Dockerfile copies into its build, and nothing else."""
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        *sources, goal = line.split()
        for name in sources:
            source = ROOT / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, target / goal, ignore=ignored)
            else:
                shutil.copyfile(source, target / goal / source.name)


def settings_of_the_image() -> dict[str, str]:
    return dict(re.findall(r"(PENSTOCK_\w+)=(\S+)", DOCKERFILE))


def health_check(port: int) -> list[str]:
    """The command by which the image says whether it is well, for another port."""
    (words,) = re.findall(r"^HEALTHCHECK.*\\\n\s*CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    python, *rest = json.loads(words)
    assert python == "python"
    return [sys.executable, *(word.replace("8080", str(port)) for word in rest)]


@dataclass(frozen=True)
class Running:
    """A broker that was started as the image starts it."""

    process: "subprocess.Popen[str]"
    data: Path
    http_port: int
    binary_port: int
    environment: dict[str, str]


def installed(tmp_path: Path) -> Path:
    """The package as the image's build installs it, from what is copied, by another user; its dependencies are ours."""
    assert (
        "RUN /opt/penstock/bin/pip install --no-cache-dir --no-deps --no-build-isolation .\n"
        in DOCKERFILE
    )
    source, target = own_directory(tmp_path, "src"), own_directory(tmp_path, "site")
    copied_tree(source)
    uv = str(Path(sys.executable).with_name("uv"))
    command = [*as_nobody(), uv, "pip", "install", "--quiet", "--offline"]
    command += ["--python", sys.executable, "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*command, "--target", str(target), "."],
        cwd=source,
        env={
            **os.environ,
            "HOME": str(target),
            "UV_CACHE_DIR": str(own_directory(tmp_path, "cache")),
        },
        check=True,
    )
    return target


@contextmanager
def running_image(tmp_path: Path, site: Path) -> Iterator[Running]:
    """Runs ENTRYPOINT and CMD with the image's environment, on free ports; SIGTERM at the end, and exit code 0."""
    assert DOCKERFILE.endswith('ENTRYPOINT ["penstock"]\nCMD ["serve"]\n')
    home = own_directory(tmp_path, "data")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": str(site),
        **settings_of_the_image(),
        "PENSTOCK_BROKER__DATA_DIR": str(home / "log"),
        "PENSTOCK_BROKER__PORT": "0",
        "PENSTOCK_BROKER__BINARY_PORT": "0",
        "PENSTOCK_LOG__FORMAT": "text",
    }
    command = [*as_nobody(), sys.executable, "-m", "penstock", "serve"]
    process = subprocess.Popen(
        command, cwd=home, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        http_port, binary_port = _ports(process.stderr)
        yield Running(process, home / "log", http_port, binary_port, environment)
    finally:
        process.terminate()
        said = process.communicate(timeout=STOP_TIMEOUT_S)
    assert process.returncode == 0, said


def _ports(lines: Iterator[str]) -> tuple[int, int]:
    said = []
    for line in lines:
        said.append(line)
        if found := re.search(r"listens on http://\S+:(\d+) and penstock://\S+:(\d+)", line):
            return int(found[1]), int(found[2])
    raise AssertionError("".join(said))
