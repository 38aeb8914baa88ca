"""A disk that is really full: publishes are refused, reads and acks go on, and it ends by itself."""

import subprocess

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
