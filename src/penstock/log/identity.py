"""The identity of a log: 24 bytes, written once: before any batch, and last of all when many logs are made at once.

 0  u32  magic      "PNID"
 4  u32  version    1
 8  u64  log id
16  u32  (zero)
20  u32  checksum   CRC32C of bytes 0..19
"""

import struct
from collections.abc import Sequence

from ..codec.checksum import checksum
from ..errors import DamagedFile, FileMissing, WrongLog
from ..model import LogId
from ..ports import Disk
from .layout import CHECKPOINT, IDENTITY, REPAIRING, base_offset_of, read_file, replace_file

_MAGIC = 0x44494E50  # b"PNID"
_VERSION = 1
_FIELDS = struct.Struct("<IIQI")
_FILE = struct.Struct("<IIQII")


def write_identity(disk: Disk, directory: str, log_id: LogId, name: str = IDENTITY) -> None:
    replace_file(disk, directory, name, identity_bytes(log_id))


def identity_bytes(log_id: LogId) -> bytes:
    fields = _FIELDS.pack(_MAGIC, _VERSION, log_id, 0)
    return fields + struct.pack("<I", checksum(fields))


def read_identity(disk: Disk, directory: str, name: str = IDENTITY) -> LogId:
    """Returns the id of the log in `directory`. DamagedFile: without the id no checksum can be checked."""
    path = f"{directory}/{name}"
    try:
        raw = read_file(disk, path)
    except FileMissing:
        raise DamagedFile(path, "the file is missing, so no batch can be checked") from None
    if len(raw) != _FILE.size:
        raise DamagedFile(path, f"{len(raw)} bytes instead of {_FILE.size}")
    magic, version, log_id, _, found = _FILE.unpack(raw)
    if magic != _MAGIC or found != checksum(raw[: _FIELDS.size]):
        raise DamagedFile(path, "wrong magic or checksum")
    if version != _VERSION:
        raise DamagedFile(path, f"version {version}, this reader knows {_VERSION}")
    return LogId(log_id)


def claim(
    disk: Disk, directory: str, log_id: LogId, names: Sequence[str], *, may_create: bool
) -> bool:
    """Check that a directory with these `names` in it belongs to `log_id`; an empty one is taken for it if a log may be
    created, and then this is True.

    DamagedFile: there should be a log and its files, or its identity, are missing. WrongLog: it is another one.
    """
    is_new = IDENTITY not in names
    if is_new:
        path = f"{directory}/{IDENTITY}"
        if REPAIRING in names:
            raise DamagedFile(path, "a repair was interrupted; it has to be run again")
        if CHECKPOINT in names or any(base_offset_of(name) is not None for name in names):
            raise DamagedFile(path, "the file is missing, but there is a log")
        if not may_create:
            raise DamagedFile(directory, "the log is missing, and it was there before")
        disk.make_directories(directory)
        write_identity(disk, directory, log_id)
    found = read_identity(disk, directory)
    if found != log_id:
        raise WrongLog(directory, found=found, expected=log_id)
    return is_new
