"""Counts calls of our own functions for one warm request, from the driver to the segment write, without HTTP.

Prints one JSON line a case: how many calls, and how many files of the package they cross. Works on older trees, too:
what it drives is the embedded broker, whose methods have not changed.

    python tools/count_calls.py            this tree
    PYTHONPATH=../other/src python tools/count_calls.py
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import penstock
from penstock import Broker

PACKAGE = str(Path(penstock.__file__).parent)


def count(work: Callable[[], object]) -> tuple[int, int]:
    """Calls of functions of the package while `work` runs, and how many of its files they are in."""
    calls = 0
    files: set[str] = set()

    def profile(frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PACKAGE):
            calls += 1
            files.add(path)

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls, len(files)


def main() -> None:
    with Broker() as broker:
        broker.create_topic("t", partitions=1)

        def publish() -> None:
            broker.publish("t", b"value", key=b"key")

        def poll() -> None:
            held.extend(broker.poll("t", "g", limit=2))

        def ack() -> None:
            broker.ack(held)

        held: list[Any] = []
        for _ in range(50):
            publish()
            publish()
            poll()
            ack()
            held.clear()
        figures = {"publish_with_key": count(publish)}
        publish()
        figures["poll_of_two"] = count(poll)
        figures["ack_of_two"] = count(ack)
    with TemporaryDirectory() as place, penstock.open(place) as queue:
        for _ in range(50):
            queue.put_many([b"x"] * 10)
            queue.sync()
        queue.put_many([b"x"] * 10)
        figures["embedded_flush"] = count(queue.sync)
    for case, (calls, files) in figures.items():
        print(json.dumps({"case": case, "calls": calls, "files": files}))


if __name__ == "__main__":
    main()
