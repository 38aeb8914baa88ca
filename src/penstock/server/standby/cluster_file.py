"""What a node keeps about its cluster over restarts: `cluster.json` in the data directory, replaced as a whole."""

from pathlib import Path
from secrets import token_hex

import msgspec

from ...errors import DamagedFile
from ...runtime.small_files import replace_file

FILE = "cluster.json"


class ClusterFacts(msgspec.Struct, frozen=True):
    """`epoch` is the highest that this node has led in or promised to follow; `led`: it led in that one.

    `is_level`: since it began to follow `epoch`, it had once everything that the leader had. `copies` is the leader's
    cluster.min_isr as it was heard last, `heard_ns` when that was, in wall time.
    """

    cluster_id: str
    epoch: int = 0
    led: bool = False
    is_level: bool = False
    copies: int = 0
    heard_ns: int = 0


def new_cluster_id() -> str:
    return token_hex(11)


def read_facts(data: Path) -> ClusterFacts | None:
    """None: this data directory was never part of a cluster. DamagedFile."""
    path = data / FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(content, type=ClusterFacts)
    except msgspec.DecodeError as error:
        raise DamagedFile(str(path), str(error)) from None


def write_facts(data: Path, facts: ClusterFacts) -> None:
    """Durable on return."""
    data.mkdir(parents=True, exist_ok=True)
    replace_file(data / FILE, msgspec.json.encode(facts))
