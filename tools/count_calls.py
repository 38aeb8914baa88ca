"""Counts calls of Penstock's functions for one warm request of the embedded broker, also in older trees.

Prints one JSON line a case: calls of the core, which is everything from `Node.execute` to the segment write, and how
many of its files they cross; and all calls of the package, the library in front of the core and the disk included.

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

PACKAGE = Path(penstock.__file__).parent
BUFFER_MESSAGES = 8192
CORE = {"broker", "codec", "delivery", "groups", "kernel", "log"}


def count(work: Callable[[], object]) -> dict[str, int]:
    """Returns the calls of functions of the package while `work` runs."""
    paths: list[str] = []

    def profile(frame: FrameType, event: str, _arg: object) -> None:
        if event == "call":
            paths.append(frame.f_code.co_filename)

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    ours = [Path(one).relative_to(PACKAGE) for one in paths if Path(one).is_relative_to(PACKAGE)]
    core = [one for one in ours if one.parts[0] in CORE]
    return {"calls": len(core), "files": len({*core}), "with_library_and_disk": len(ours)}


def main() -> None:
    with TemporaryDirectory() as place, Broker(place) as broker:
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
        # A buffer that is full is flushed by the thread that filled it; a sync would be that of another thread.
        figures["embedded_flush"] = count(lambda: queue.put_many([b"x"] * BUFFER_MESSAGES))
    for case, counted in figures.items():
        print(json.dumps({"case": case, **counted}))


if __name__ == "__main__":
    main()
