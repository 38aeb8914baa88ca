"""Codec: a batch of messages as bytes, and back.

The layout is columnar (docs/formats/batch.md): lengths, times and priorities are arrays, keys and values are
blobs, so no call here loops over messages in Python until a caller asks for `Message` objects. Knows bytes
and nothing else: no files, no clock, no offsets of its own.

    encoded = encode(Columns(values=[b"a", b"b"], timestamps=now_ns))    # from lists
    encoded = encode_messages([Message(b"a"), Message(b"b")])            # from objects
    batch = encoded.to_bytes()
    head = verify(batch)                                                 # both checksums
    table = decode_arrow(batch, head)                                    # zero copy
    columns = decode_columns(batch, head)                                # back to lists
    for message in decode_messages(batch, head): ...                     # objects, made when touched
    patched = stamp(head, base_offset=7, ...)                            # new head, same body
"""

from typing import TYPE_CHECKING

from .checksum import seed_of as seed_of
from .columns import Columns as Columns
from .compression import Compression as Compression
from .decode import decode_columns as decode_columns
from .decode import decode_messages as decode_messages
from .edit import select as select
from .encode import Encoded as Encoded
from .encode import encode as encode
from .encode import encode_messages as encode_messages
from .head import COUNT_MAX as COUNT_MAX
from .head import HEAD_BYTES as HEAD_BYTES
from .head import Head as Head
from .head import Marks as Marks
from .head import Origin as Origin
from .head import batches_in as batches_in
from .head import read_head as read_head
from .head import stamp as stamp
from .head import verify as verify

if TYPE_CHECKING:
    from .arrow import decode_arrow as decode_arrow


def __getattr__(name: str) -> object:
    # pyarrow takes as long to import as everything else together, and most processes never need it.
    if name == "decode_arrow":
        from .arrow import decode_arrow

        return decode_arrow
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
