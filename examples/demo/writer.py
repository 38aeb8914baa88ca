"""The process that the demo kills: appends until it dies, and says what it was promised.

Each line is "base_offset next_offset body_checksum append_time" of a batch, written after the batch is durable.
"""

import os
import sys
from collections.abc import Iterator
from itertools import count
from threading import Lock, Thread

from bench.log_writer import LogWriter
from penstock.codec import Columns, encode
from penstock.config import FsyncPolicy, LogConfig, StorageConfig
from penstock.log import open_log
from penstock.model import LogId
from penstock.runtime import RealDisk, SystemClock
from penstock.runtime.commit import Committer

LOG_ID = LogId(0xDE30)
DIRECTORY = "topics/default/orders.1/partition-0/messages"
STORAGE = StorageConfig(fsync=FsyncPolicy.ALWAYS)
LOG = LogConfig(segment_size_bytes=8 << 20, checkpoint_bytes=4 << 20)
APPENDERS = 8
BATCH_MESSAGES = 100
CITIES = ("Aarhus", "Bergen", "Cadiz", "Dover", "Essen", "Faro", "Genoa", "Hull")


def order(number: int) -> bytes:
    """Returns an order as a web shop might publish it; no two are equal."""
    city, cents = CITIES[number % len(CITIES)], number * 7919 % 50_000
    return b'{"order": %d, "city": "%s", "cents": %d}' % (number, city.encode(), cents)


def columns_from(first: int, now_ns: int) -> Columns:
    numbers = range(first, first + BATCH_MESSAGES)
    return Columns(
        values=[order(number) for number in numbers],
        keys=[b"customer-%d" % (number % 1000) for number in numbers],
        timestamps=[now_ns + number - first for number in numbers],
    )


def append_for_ever(writer: LogWriter, numbers: Iterator[int], speaking: Lock) -> None:
    clock = SystemClock()
    for number in numbers:
        encoded = encode(columns_from(number * BATCH_MESSAGES, clock.now_ns()))
        appended = writer.append(encoded)
        body_checksum = encoded.head.body_checksum
        line = b"%d %d %d %d\n" % (*appended[:2], body_checksum, appended.append_time)
        with speaking:
            try:
                os.write(1, line)
            except BrokenPipeError:
                # The demo has closed the pipe. Other threads may be waiting for the disk.
                os._exit(0)


def main(root: str) -> None:
    clock = SystemClock()
    with RealDisk(root, STORAGE) as disk, Committer(STORAGE, clock) as committer:
        log, _ = open_log(disk, DIRECTORY, log_id=LOG_ID, config=LOG)
        writer = LogWriter(log, committer, clock)
        numbers, speaking = count(), Lock()
        threads = [
            Thread(target=append_for_ever, args=(writer, numbers, speaking))
            for _ in range(APPENDERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(sys.argv[1])
