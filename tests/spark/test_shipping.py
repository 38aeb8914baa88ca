"""Executors without Penstock, which comes with the job: `--py-files`, as the guide says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.codec import Columns, encode
from penstock.spark.session import prepare

from .standalone import Cluster

pytestmark = [pytest.mark.tier("torture"), pytest.mark.xdist_group("spark")]
ROOT = Path(__file__).parents[2]
JOB = Path(__file__).parent / "shipping_job.py"
COUNT = 20_000
_OURS = ("penstock", "pyspark_penstock", "_editable_impl_penstock")
_SCRIPT = """\
#!/bin/sh
PYTHONPATH="$PYTHONPATH:{packages}" exec {bare} -s "$@"
"""


def python_without_penstock(folder: Path) -> Path:
    """A Python with everything that Penstock needs, but not Penstock."""
    import pyarrow as pa

    packages = folder / "packages"
    packages.mkdir()
    for one in Path(pa.__file__).parents[1].iterdir():
        if not one.name.startswith(_OURS):
            (packages / one.name).symlink_to(one)
    script = folder / "python"
    script.write_text(_SCRIPT.format(packages=packages, bare=sys._base_executable))
    script.chmod(0o755)
    return script


def zipped(folder: Path) -> Path:
    """The wheel, under a name that Spark takes."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True, timeout=1200)
    (wheel,) = folder.glob("penstock-*.whl")
    return wheel.rename(folder / "penstock.zip")


@pytest.fixture
def cluster(tmp_path):
    """One whose executors cannot import Penstock; its driver, which looks for `format("penstock")`, can."""
    python = python_without_penstock(tmp_path)
    found = Cluster(tmp_path)
    driver = {
        **found.environment,
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    found.environment.pop("PYTHONPATH", None)
    alone = subprocess.run([python, "-c", "import penstock"], env=found.environment, check=False)
    assert alone.returncode == 1, "there is none"
    try:
        found.start(workers=1)
        found.environment = driver
        yield found
    finally:
        found.stop()


def test_a_package_that_is_sent_along_is_enough_for_tables_and_streams(
    client, broker, tmp_path, cluster
):
    import pyspark

    client.create_topic("shipped", partitions=2)
    batch = encode(Columns(values=[bytes(100)] * 1000, timestamps=1)).to_bytes()
    for number in range(COUNT // 1000):
        client.append_batch("shipped", number % 2, bytes(batch))
    settings = dict(cluster.environment)
    prepare(settings)
    submit = Path(pyspark.__path__[0]) / "bin" / "spark-submit"
    words = ["--master", cluster.url, "--executor-memory", "512m"]
    package = str(zipped(tmp_path / "dist"))
    done = subprocess.run(
        [submit, *words, "--py-files", package, JOB, broker, tmp_path],
        env=settings | {"SPARK_HOME": os.fspath(Path(pyspark.__path__[0]))},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert all("penstock.zip/penstock/" in one for one in found["places"]), found["places"]
    assert found["table"] == [COUNT, COUNT]
    assert found["streamed"] == COUNT
