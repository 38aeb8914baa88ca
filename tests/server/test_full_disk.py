"""A disk that is really full: publishes are refused, reads and acks go on, and it ends by itself."""

import subprocess
from contextlib import suppress

import pytest

from .rigs import served

SIZE = 16 << 20
FILLED = 1 << 20


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own that is soon full."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"only root can mount a small disk: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def small_ext4(tmp_path):
    """The same with a journal of its own, as real disks have."""
    image, place = tmp_path / "image", tmp_path / "ext4"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(SIZE)
    commands = (
        ["mkfs.ext4", "-q", "-F", str(image)],
        ["mount", "-o", "loop", str(image), str(place)],
    )
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError as error:
            pytest.skip(f"no {error.filename} here")
        if done.returncode:
            pytest.skip(f"only root can mount a small disk: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("min_free_bytes", [0, 2 << 20])
def test_a_full_disk_refuses_publishes_and_nothing_else(small_disk, min_free_bytes):
    """Without a reserve it is the disk itself that says no."""
    environment = {"PENSTOCK_STORAGE__MIN_FREE_BYTES": str(min_free_bytes)}
    with served(small_disk / "data", environment=environment) as broker:
        config = {"segment_size_bytes": 1 << 20}
        topic = {"name": "orders", "num_partitions": 1, "config": config}
        assert broker.call("POST", "/topics", topic).status == 201
        sent = {"messages": [{"value": "x" * 1000}]}
        publish = "/topics/orders/messages"
        assert broker.call("POST", publish, sent).status == 200
        ballast = small_disk / "ballast"
        fill(ballast)
        refused = broker.call("POST", publish, {"messages": [{"value": "x" * FILLED}]})
        assert refused.status == 507, refused.body
        assert refused.json["error"] == "NO_SPACE"
        read = broker.call("GET", "/topics/orders/partitions/0/messages")
        assert len(read.json["messages"]) == 1
        if min_free_bytes:
            # The reserve is what the journal of acks lives on.
            (message,) = broker.call("GET", f"{publish}?group=g").json["messages"]
            receipt = {"receipt_handle": message["receipt_handle"]}
            assert broker.call("POST", "/messages/ack", receipt).json["success"] is True
        assert broker.call("GET", "/livez").status == 200
        ballast.unlink()
        while broker.call("POST", publish, sent).status == 507:
            pass
        assert broker.call("GET", "/topics/orders").json["total_messages"] == 2
        assert broker.stop() == 0


def fill_up(path) -> None:
    """Take the last byte, whoever's it was."""
    with path.open("wb", buffering=0) as file:
        for size in (FILLED, 4096, 512, 1):
            with suppress(OSError):
                while file.write(b"\0" * size):
                    pass


@pytest.mark.tier("test")
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_disk_without_a_byte_loses_nothing(kind, tmp_path, request):
    """Somebody else has eaten the reserve, too: what cannot be written is refused, and can be said again later."""
    place = request.getfixturevalue("small_disk" if kind == "tmpfs" else "small_ext4")
    environment = {"PENSTOCK_STORAGE__MIN_FREE_BYTES": str(2 << 20)}
    publish, poll = "/topics/orders/messages", "/topics/orders/messages?group=g"
    sent = {"messages": [{"value": str(number)} for number in range(400)]}
    everything = "/topics/orders/partitions/0/messages?limit=1000"
    few = {"messages": sent["messages"][:6]}
    with served(place / "data", environment=environment) as broker:
        broker.call("POST", "/topics", {"name": "orders", "num_partitions": 1})
        assert broker.call("POST", publish, sent).status == 200
        held = broker.call("GET", f"{poll}&max=200").json["messages"]
        assert len(held) == 200
        fill_up(place / "ballast")
        until_refused(broker.call("POST", publish, few) for _ in range(10_000))
        until_refused(broker.call("GET", f"{poll}&max=1") for _ in range(100))
        # The last page of a file has room for a few answers more.
        said = iter(held)
        acked = until_refused(broker.call("POST", "/messages/ack", receipt_of(one)) for one in said)
        until_refused(broker.call("POST", "/messages/nack", receipt_of(one)) for one in said)
        stored = broker.call("GET", "/topics/orders").json["total_messages"]
        held = held[acked:]
        many = {"receipt_handles": [one["receipt_handle"] for one in held[-100:]]}
        results = broker.call("POST", "/messages/ack", many).json["results"]
        assert {one["error"] for one in results} == {"NO_SPACE"}
        assert broker.call("POST", "/topics", {"name": "more", "num_partitions": 1}).status == 507
        read = broker.call("GET", everything).json["messages"]
        assert len(read) == stored
        while broker.call("GET", "/readyz").json["status"] != "warn":
            pass
        (place / "ballast").unlink()
        while broker.call("POST", publish, few).status == 507:
            pass
        (refused,) = [broker.call("POST", "/messages/ack", receipt_of(held[0]))]
        assert refused.json["success"] is True, "what was refused can be said again"
        results = broker.call("POST", "/messages/ack", many).json["results"]
        assert all(one["success"] for one in results)
        assert broker.call("POST", "/topics", {"name": "more", "num_partitions": 1}).status == 201
        assert broker.stop() == 0
    with served(place / "data", environment=environment) as broker:
        found = broker.call("GET", everything).json["messages"]
        assert [one["value"] for one in found] == [one["value"] for one in read] + list("012345")
        again = broker.call("POST", "/messages/ack", many).json["results"]
        assert all(one["success"] for one in again), "the answers outlived the process"
        assert broker.stop() == 0


def receipt_of(message) -> dict[str, str]:
    return {"receipt_handle": message["receipt_handle"]}


def until_refused(replies) -> int:
    """How many were not: the broker looks at the disk ten times a second, and a page may have room left."""
    for number, reply in enumerate(replies):
        if reply.status == 507:
            assert reply.json["error"] == "NO_SPACE"
            return number
        assert reply.status == 200, reply.body
    raise AssertionError("it is full and takes everything")


def fill(path) -> None:
    """Leave less than the reserve, but a little: whoever shrinks a disk to nothing cannot ack on it."""
    with path.open("wb") as file:
        file.truncate(0)
        for _ in range((SIZE - FILLED) // FILLED):
            try:
                file.write(b"\0" * FILLED)
                file.flush()
            except OSError:
                return
