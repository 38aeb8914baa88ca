"""The image is not built here; what its Dockerfile and the compose file do is done, step by step, not as root."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from .images import (
    COMPOSE,
    NOBODY,
    Running,
    as_nobody,
    health_check,
    installed,
    own_directory,
    running_image,
)

pytestmark = [pytest.mark.tier("test"), pytest.mark.xdist_group("image")]


@pytest.fixture(scope="module")
def open_directory() -> Iterator[Path]:
    """A directory that another user can come through; those of pytest are its own."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def image(open_directory: Path) -> Iterator[Running]:
    with running_image(open_directory, installed(open_directory)) as running:
        yield running


def test_what_is_copied_is_enough_to_install_and_start(image: Running) -> None:
    assert image.process.poll() is None
    owner = NOBODY if os.getuid() == 0 else os.getuid()
    assert image.data.stat().st_uid == owner
    done = subprocess.run(
        [*as_nobody(), sys.executable, "-c", "import penstock; print(penstock.__file__)"],
        env=image.environment,
        cwd=image.data.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(image.environment["PYTHONPATH"])


def test_its_health_check_sees_it_and_sees_that_it_is_away(image: Running) -> None:
    assert subprocess.run(health_check(image.http_port)).returncode == 0
    assert subprocess.run(health_check(9), stderr=subprocess.DEVNULL).returncode != 0


def test_compose_makes_the_key_of_prometheus_once(image: Running, open_directory: Path) -> None:
    service = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]["metrics-key"]
    keys = own_directory(open_directory, "keys")
    (script,) = service["command"]
    script = script.replace("/keys/", f"{keys}/").replace("/data/log/", f"{image.data}/")
    script = script.replace("penstock keys", f"{sys.executable} -m penstock keys")
    server = f"penstock://127.0.0.1:{image.binary_port}"
    made = []
    for _ in range(2):
        subprocess.run(
            [*as_nobody(), *service["entrypoint"], script],
            env={**image.environment, "PENSTOCK_SERVER": server},
            check=True,
        )
        made.append((keys / "metrics.key").read_text(encoding="utf-8"))
    assert made[0] == made[1]
    assert [file.name for file in keys.iterdir()] == ["metrics.key"]
    url = f"http://127.0.0.1:{image.http_port}/metrics"
    bearer = f"Authorization: Bearer {made[0].strip()}"
    done = subprocess.run(["curl", "-sS", "-H", bearer, url], capture_output=True, text=True)
    assert "\npenstock_ready 1\n" in done.stdout, done.stdout[:300]
