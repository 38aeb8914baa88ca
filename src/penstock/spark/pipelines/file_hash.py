"""Hashes of stored files."""

import hashlib

from .store import LakeStore

# In a bucket each read is a request.
_READ_BYTES = 4 << 20


def hash_of(store: LakeStore, path: str) -> tuple[int, str]:
    """Returns the size and the SHA-256 of a file. FileMissing."""
    found, size = hashlib.sha256(), 0
    with store.translated(path), store.open_read(path) as file:
        while data := file.read(_READ_BYTES):
            found.update(data)
            size += len(data)
    return size, found.hexdigest()
