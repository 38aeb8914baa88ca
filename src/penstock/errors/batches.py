"""Bytes that are not a batch."""

from .families import Refused


class MalformedBatch(Refused):
    code = "MALFORMED_BATCH"

    def __init__(self, reason: str, **fields: object) -> None:
        super().__init__(f"not a valid batch: {reason}", reason=reason, **fields)
        self.reason = reason


class ChecksumMismatch(MalformedBatch):
    code = "CHECKSUM_MISMATCH"

    def __init__(self, part: str, *, found: int, expected: int) -> None:
        super().__init__(
            f"checksum of the {part} is {found:#010x}, the bytes give {expected:#010x}",
            part=part,
            found=found,
            expected=expected,
        )


class UnsupportedFormat(MalformedBatch):
    code = "UNSUPPORTED_FORMAT"
