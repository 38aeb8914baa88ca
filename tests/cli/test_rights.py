"""Files that the user of a command may not read: that is told, and is no damage."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import penstock
from penstock.cli.exits import Exit, run
from penstock.cli.root import root
from penstock.config import StorageConfig
from penstock.runtime import RealDisk
from penstock.server.audit import AuditLog
from penstock.testing.server import running_server
from tests.log.damaged import as_nobody

MESSAGES = "topics/default/orders.1/partition-0/messages"
LOG = f"{MESSAGES}/00000000000000000000.log"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of a broker which has ended, open for all to read."""
    made = tmp_path_factory.mktemp("rights") / "data"
    with running_server(made):
        pass
    with penstock.Broker(made) as broker:
        broker.create_topic("orders", partitions=1)
        broker.publish("orders", b"lamp")
    with RealDisk(made, StorageConfig()) as disk, closing(AuditLog(disk, lambda: 1)) as log:
        log.write("ops", "create a topic", "orders")
    for path in (made, *made.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return made


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "queue"
    with penstock.open(made) as found:
        found.put(b"lamp")
    yield made
    made.chmod(0o755)


def ran(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = run(root, [*map(str, words)])
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("log", "verify"), LOG),
        (("log", "verify"), "meta/identity"),
        (("log", "stats"), f"{MESSAGES}/checkpoint"),
        (("log", "repair", "--dry-run"), LOG),
        (("log", "verify"), MESSAGES),
        (("audit", "verify"), "audit.head"),
    ],
)
def test_a_file_that_may_not_be_read_is_named_and_is_no_damage(
    directory: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    name: str,
) -> None:
    path = directory / name
    mode = path.stat().st_mode
    assert ran(capsys, *words, directory)[0] == Exit.OK
    path.chmod(0)
    try:
        with as_nobody(directory):
            found = ran(capsys, *words, directory)
    finally:
        path.chmod(mode)
    code, text = found
    assert code == Exit.REFUSED
    assert text.startswith(f"Error: {path}: Permission denied")


def test_a_queue_that_may_not_be_read_is_not_missing(
    queue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.chmod(0)
    with as_nobody(queue):
        code, told = ran(capsys, "queue", "stats", queue)
    assert (code, told) == (Exit.REFUSED, f"Error: {queue}/meta: Permission denied\n")
