"""Memory for large bodies, used again when no object refers to what was in it.

Fresh memory costs as much as receiving into it: the system has to find and clear every page first.
"""

import sys
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Block = npt.NDArray[np.uint8]

# One that the caller uses, one that is being received, and two to spare. Larger bodies are rare and get fresh memory.
_BLOCKS_MAX = 4
_BLOCK_BYTES_MAX = 5 << 20
# Below this, fresh memory is as cheap.
_BLOCK_BYTES_MIN = 1 << 20
# One in the list, and one that `getrefcount` itself holds.
_REFERENCES_OF_FREE = 2


class Memory:
    """Keeps at most four blocks of 5 MiB. Safe to share between threads.

    A view of a block, a view of that, and an Arrow column made from it all hold a reference to the block. When none is
    left, the block is free.
    """

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._guard = Lock()

    def take(self, size: int) -> memoryview:
        """So many bytes, not cleared."""
        # Imported here: most clients never receive a large body.
        import numpy as np

        is_kept = _BLOCK_BYTES_MIN <= size <= _BLOCK_BYTES_MAX
        # Never waits: a process that was forked while another thread held the lock would wait for ever.
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
