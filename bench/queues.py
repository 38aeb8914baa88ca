"""Durable queues that live inside a Python process: ours and the peers, behind one small face.

Each stores 100-byte values one by one, first in first out, and removes what it hands out. Each runs as its documents
say a single process should run it, and without an fsync for every put where it lets us choose.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def _nothing() -> None:
    return


@dataclass(frozen=True, slots=True)
class QueueContender:
    """An open queue: calls that put one value, get one, and flush what is still in memory."""

    put: Callable[[bytes], object]
    get: Callable[[], object]
    flush: Callable[[], object] = _nothing


@dataclass(frozen=True, slots=True)
class QueuePeer:
    """A queue that can be opened below a directory, and the package that it needs."""

    package: str
    open: Callable[[Path], Any]

    @property
    def is_installed(self) -> bool:
        return find_spec(self.package) is not None


@contextmanager
def persist_file(path: Path) -> Iterator[QueueContender]:
    import persistqueue

    queue = persistqueue.Queue(str(path))

    def get() -> None:
        queue.get_nowait()
        queue.task_done()

    yield QueueContender(queue.put, get)


@contextmanager
def persist_sqlite(path: Path) -> Iterator[QueueContender]:
    import persistqueue

    # It leaves `synchronous` at FULL, so every put is fsynced, here and in the case that asks for it.
    queue = persistqueue.FIFOSQLiteQueue(str(path), auto_commit=True, multithreading=True)
    yield QueueContender(queue.put, lambda: queue.get(block=False))
    queue.close()


@contextmanager
def litequeue(path: Path) -> Iterator[QueueContender]:
    from litequeue import LiteQueue

    path.mkdir()
    queue = LiteQueue(path / "queue.sqlite")
    # It keeps texts; a caller with bytes has to turn them into one.
    yield QueueContender(
        lambda value: queue.put(value.decode("latin-1")), lambda: queue.done(queue.pop().message_id)
    )
    queue.close()


@contextmanager
def sqlite_wal(path: Path, synchronous: str = "NORMAL") -> Iterator[QueueContender]:
    connection = sqlite3.connect(_made(path) / "q", isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("CREATE TABLE q (id INTEGER PRIMARY KEY, value BLOB)")
    put = "INSERT INTO q (value) VALUES (?)"
    get = "DELETE FROM q WHERE id = (SELECT MIN(id) FROM q) RETURNING value"
    yield QueueContender(
        lambda value: connection.execute(put, (value,)), lambda: connection.execute(get).fetchone()
    )
    connection.close()


@contextmanager
def sqlite_full(path: Path) -> Iterator[QueueContender]:
    with sqlite_wal(path, "FULL") as contender:
        yield contender


@contextmanager
def diskcache_deque(path: Path) -> Iterator[QueueContender]:
    from diskcache import Deque

    deque = Deque(directory=str(path))
    yield QueueContender(deque.append, deque.popleft)
    deque.cache.close()


@contextmanager
def lmdb_queue(path: Path, *, is_synced: bool = False) -> Iterator[QueueContender]:
    import lmdb

    environment = lmdb.open(str(path), map_size=4 << 30, sync=is_synced, metasync=is_synced)
    count = 0

    def put(value: bytes) -> None:
        nonlocal count
        count += 1
        with environment.begin(write=True) as transaction:
            transaction.put(count.to_bytes(8), value, append=True)

    def get() -> bytes | None:
        with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
            value: bytes | None = cursor.pop(cursor.key()) if cursor.first() else None
            return value

    yield QueueContender(put, get)
    environment.close()


@contextmanager
def lmdb_synced(path: Path) -> Iterator[QueueContender]:
    with lmdb_queue(path, is_synced=True) as contender:
        yield contender


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


PEERS = {
    "persist-queue file": QueuePeer("persistqueue", persist_file),
    "persist-queue SQLite": QueuePeer("persistqueue", persist_sqlite),
    "litequeue": QueuePeer("litequeue", litequeue),
    "sqlite3 WAL": QueuePeer("sqlite3", sqlite_wal),
    "diskcache Deque": QueuePeer("diskcache", diskcache_deque),
    "LMDB, sync off": QueuePeer("lmdb", lmdb_queue),
}
# With an fsync before each put returns. The others have no such setting.
SYNCED_PEERS = {
    "persist-queue SQLite": QueuePeer("persistqueue", persist_sqlite),
    "sqlite3 WAL, synchronous=FULL": QueuePeer("sqlite3", sqlite_full),
    "LMDB, sync on": QueuePeer("lmdb", lmdb_synced),
}
