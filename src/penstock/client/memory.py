"""Memory for large bodies, used again when nobody looks at what was in it.

Memory that is new costs as much as what is received into it: the system has to find and clear every page first.
"""

import sys
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Block = npt.NDArray[np.uint8]

# What is looked at, what is being received, and one to spare. Larger bodies are rare and get memory of their own.
_BLOCKS_MAX = 4
_BLOCK_BYTES_MAX = 5 << 20
# From here on it is worth it.
_BLOCK_BYTES_MIN = 1 << 20
# The list's, and the one that `getrefcount` itself holds.
_REFERENCES_OF_FREE = 2


class Memory:
    """At most four blocks of 5 MiB are kept. Safe to share.

    A view of a block, and a view of that, and an Arrow column made from it, all hold a reference to the block. When
    none is left, nobody can look at it any more.
    """

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._guard = Lock()

    def take(self, size: int) -> memoryview:
        """So many bytes, with anything in them."""
        # Most clients never meet a large body; whoever decodes one has numpy anyway.
        import numpy as np

        is_kept = _BLOCK_BYTES_MIN <= size <= _BLOCK_BYTES_MAX
        # Nobody waits here: a process that forked while another thread was in here would wait for ever.
        if not is_kept or not self._guard.acquire(blocking=False):
            return np.empty(size, np.uint8).data
        try:
            block = self._free_block()
            if block is None and len(self._blocks) < _BLOCKS_MAX:
                block = np.empty(_BLOCK_BYTES_MAX, np.uint8)
                self._blocks.append(block)
            return np.empty(size, np.uint8).data if block is None else block.data[:size]
        finally:
            self._guard.release()

    def _free_block(self) -> "Block | None":
        for place in range(len(self._blocks)):
            if sys.getrefcount(self._blocks[place]) == _REFERENCES_OF_FREE:
                return self._blocks[place]
        return None


MEMORY = Memory()
