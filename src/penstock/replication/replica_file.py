"""The file `replica` in a data directory that other nodes have, too: what this node has promised, and what it knows.

     0  u32  magic      "PNRP"
     4  u32  version    1
     8  ...  MessagePack: an array, see `ReplicaRecord`
     .  u32  checksum   CRC32C of everything before

It is replaced as a whole. A node that has lost it cannot lead: it does not know what it has promised.
"""

import struct
from contextlib import closing

import msgspec

from ..codec.checksum import checksum
from ..errors import DamagedFile
from ..log.layout import TEMPORARY, read_file
from ..ports import Disk

NAME = "replica"
_MAGIC = 0x50524E50  # b"PNRP"
_VERSION = 1
_KIND = struct.Struct("<II")
_CHECKSUM = struct.Struct("<I")


class ReplicaRecord(msgspec.Struct, array_like=True):
    """`promised` is the highest epoch that this node has followed, or led in. `committed` has the ends of logs that are
    known to be committed, by path: nothing below them is ever cut.

    `is_whole`: no log was set aside since this node had last everything. `handed_over` is the epoch whose leader has
    handed over to this node. `forced_epoch` is the last one in the history of these logs that was begun by force, and
    `committed` is of that history.
    """

    disk_id: int
    cluster_id: str = ""
    promised: int = 0
    is_whole: bool = True
    handed_over: int = 0
    committed: dict[str, int] = {}
    forced_epoch: int = 0


def read_record(disk: Disk) -> ReplicaRecord | None:
    """Returns what the file says, or None if there is none. DamagedFile."""
    if not disk.exists(NAME):
        return None
    raw = read_file(disk, NAME)
    if len(raw) < _KIND.size + _CHECKSUM.size or _CHECKSUM.unpack(raw[-4:])[0] != checksum(
        raw[:-4]
    ):
        raise DamagedFile(NAME, "wrong length or checksum")
    if _KIND.unpack_from(raw) != (_MAGIC, _VERSION):
        raise DamagedFile(NAME, f"not of version {_VERSION}")
    try:
        return msgspec.msgpack.decode(raw[_KIND.size : -4], type=ReplicaRecord)
    except msgspec.DecodeError as error:
        raise DamagedFile(NAME, str(error)) from None


def write_record(disk: Disk, record: ReplicaRecord) -> None:
    """Replace the file, durably."""
    raw = _KIND.pack(_MAGIC, _VERSION) + msgspec.msgpack.encode(record)
    with closing(disk.create(NAME + TEMPORARY)) as file:
        file.append(raw, _CHECKSUM.pack(checksum(raw)))
        file.sync()
    disk.rename(NAME + TEMPORARY, NAME)
    disk.sync_directory("")
