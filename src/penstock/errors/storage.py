"""Directories and files: in use, missing, full, damaged, or on a disk that fails."""

from .families import Damaged, Fatal, Refused, Unavailable


class AlreadyOpen(Refused):
    code = "ALREADY_OPEN"

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(f"{path} is already open in {holder}", path=path, holder=holder)


class WrongLog(Refused):
    code = "WRONG_LOG"

    def __init__(self, path: str, *, found: int, expected: int) -> None:
        super().__init__(
            f"{path} belongs to log {found:#018x}, not to {expected:#018x}",
            path=path,
            found=found,
            expected=expected,
        )


class FileMissing(Refused):
    code = "FILE_MISSING"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} does not exist", path=path)


class NoSpace(Unavailable):
    """A file could not be written, which `path` names; or nothing was tried, and `reason` says why."""

    code = "NO_SPACE"

    def __init__(self, path: str = "", *, reason: str = "") -> None:
        assert bool(path) != bool(reason), "one of them"
        if path:
            super().__init__(f"no space left to write {path}", path=path)
        else:
            super().__init__(f"no space left: {reason}", reason=reason)


class PartitionFaulty(Unavailable):
    """Files of a partition are damaged or missing. Another try is no use before an operator has seen to them."""

    code = "PARTITION_FAULTY"
    retriable = False

    def __init__(self, topic: str, partition: int, path: str, reason: str) -> None:
        said = f"partition {topic}/{partition} cannot be used: {path}: {reason}"
        super().__init__(said, topic=topic, partition=partition, path=path, reason=reason)


class DamagedBatch(Damaged):
    """A batch that once was whole. `offset` is the first offset that cannot be read, `next_offset` where reading can go
    on; None if unknown."""

    code = "DAMAGED_BATCH"

    def __init__(
        self,
        path: str,
        position: int,
        reason: str,
        *,
        next_offset: int | None,
        offset: int | None = None,
    ) -> None:
        super().__init__(
            f"damaged batch in {path} at byte {position}: {reason}",
            path=path,
            position=position,
            reason=reason,
            offset=offset,
            next_offset=next_offset,
        )
        self.path, self.position, self.reason = path, position, reason
        self.offset, self.next_offset = offset, next_offset


class DamagedFile(Damaged):
    code = "DAMAGED_FILE"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"damaged file {path}: {reason}", path=path, reason=reason)
        self.path, self.reason = path, reason


class SyncFailed(Fatal):
    """An fsync failed. The kernel may have dropped the pages, so a retry that succeeds would lie."""

    code = "SYNC_FAILED"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"fsync of {path} failed: {reason}", path=path, reason=reason)


class DiskFailed(Fatal):
    code = "DISK_FAILED"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"disk failed on {path}: {reason}", path=path, reason=reason)
