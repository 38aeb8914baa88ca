"""Memory that batches leave behind stays with the process.

glibc hands the end of the heap back to the kernel as soon as a few hundred KiB are free there. A batch is about that
large, so without help the pages of every single one are returned, faulted in and zeroed again, which costs more than
encoding it does.
"""

# glibc keeps up to twice of what the largest block was that it mapped by itself and got back.
_LARGEST_BLOCK_BYTES = 8 << 20


def keep_freed_memory() -> None:
    """Have up to 16 MiB of freed memory kept. Elsewhere than on glibc nothing happens, at no cost."""
    block = bytearray(
        _LARGEST_BLOCK_BYTES
    )  # Zeroed by the kernel when touched, and no code touches it.
    del block
