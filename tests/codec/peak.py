"""Decodes the batch on standard input in every way; prints the outcome and the memory that it took.

A process of its own, because a peak can only be read for a whole process:

    python -m tests.codec.peak < batch
"""

import sys
from pathlib import Path

from penstock.codec import Columns, decode_arrow, decode_columns, decode_messages, encode, verify
from penstock.errors import Refused

MIB = 1024 * 1024


def status_bytes(name: str) -> int:
    """A line of /proc/self/status: VmRSS is what we have now, VmHWM the most we ever had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        key, _, rest = line.partition(":")
        if key == name:
            return int(rest.split()[0]) * 1024
    raise LookupError(name)


def decode_every_way(batch: bytes) -> str:
    try:
        head = verify(batch)
        messages = list(decode_messages(batch, head))
        del messages
        columns = decode_columns(batch, head)
        del columns
        decode_arrow(batch, head).validate(full=True)
    except Refused as refusal:
        return type(refusal).__name__
    return "read"


def main() -> None:
    batch = sys.stdin.buffer.read()
    decode_every_way(encode(Columns(values=[b"warm"], headers=[[("up", b"")]])).to_bytes())
    before = status_bytes("VmRSS")
    outcome = decode_every_way(batch)
    sys.stdout.write(f"{outcome} {(status_bytes('VmHWM') - before) // MIB}\n")


if __name__ == "__main__":
    main()
