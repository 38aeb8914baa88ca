"""What the C library's malloc has given out: the memory in which a leak of a native library shows."""

import ctypes
from collections.abc import Callable

_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in _FIELDS.split())


def _find_mallinfo2() -> Callable[[], _Mallinfo2] | None:
    try:
        found = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    found.restype = _Mallinfo2
    return found


_mallinfo2 = _find_mallinfo2()


def malloc_bytes() -> int | None:
    """Bytes in use, mapped blocks included; None where the C library is not glibc 2.33 or later.

    Small objects of Python itself are not among them: they live in arenas of their own.
    """
    if _mallinfo2 is None:
        return None
    found = _mallinfo2()
    return int(found.uordblks + found.hblkhd)
