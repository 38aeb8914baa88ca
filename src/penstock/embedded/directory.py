"""A data directory, opened for a queue or a broker in this process."""

import os
import pathlib
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from logging import Logger, getLogger
from typing import NamedTuple, TypeVar

from ..api.arguments import shown, whole_number
from ..config import FsyncPolicy, StorageConfig
from ..errors import InvalidConfig, NoSpace, Refused
from ..ports import Clock, Disk
from ..runtime import RealDisk, SystemClock
from ..runtime.failures import translate
from ..runtime.threads import ThreadDriver
from ..runtime.world import World

T = TypeVar("T")
Path = str | os.PathLike[str]
_CLOCK = ("now_ns", "monotonic_ns")
_LOGGER = ("warning", "error", "critical")


class Opened(NamedTuple):
    """What has to be closed again, in this order."""

    driver: ThreadDriver
    give_up_disk: Callable[[], None]


def open_driver(
    path: Path | None,
    storage: StorageConfig,
    *,
    clock: Clock | None,
    logger: Logger | None,
    is_firing: bool = True,
) -> Opened:
    """Open a directory, or memory if there is none. `is_firing`: see `ThreadDriver`."""
    our_clock = _with("clock", clock, _CLOCK) if clock is not None else SystemClock()
    our_logger = _with("logger", logger, _LOGGER) if logger is not None else getLogger("penstock")

    def complain(error: BaseException) -> None:
        # A library does not end its host's process. Every call from now on raises this error.
        our_logger.critical("stopped for good: %s", error)

    world = World(
        clock=our_clock,
        entropy=random.SystemRandom(),
        logger=our_logger,
        on_fatal=complain,
    )
    if path is None:
        # Memory has no free space to speak of.
        unguarded = replace(storage, min_free_bytes=0)
        return Opened(ThreadDriver(_memory(), unguarded, world, is_firing=is_firing), _nothing)
    disk = RealDisk(_checked(path), storage)
    try:
        return Opened(ThreadDriver(disk, storage, world, is_firing=is_firing), disk.close)
    except BaseException as error:
        with suppress(OSError):
            disk.close()
        if isinstance(error, NoSpace) and "path" in error.fields:
            # It knows the file only, which is one of ours.
            raise NoSpace(f"{path}/{error.fields['path']}") from error
        raise


def _checked(path: object) -> str:
    found = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(found, str) or not found or "\0" in found:
        raise Refused(f"a directory is named by text or a path, not {found!r}")
    place = pathlib.Path(found)
    try:
        os.fsencode(found)
        is_taken = place.exists() and not place.is_dir()
    except OSError as error:
        raise translate(error, found) from error
    except UnicodeEncodeError:
        raise Refused(f"{shown(found)} is text that no path can hold") from None
    if is_taken:
        raise Refused(f"{found} is not a directory")
    return found


def _with(what: str, found: T, methods: tuple[str, ...]) -> T:
    """Something that can do what is asked of it. The first use may be days away, and then in a thread of ours."""
    missing = [name for name in methods if not callable(getattr(found, name, None))]
    if missing:
        raise InvalidConfig(what, found, f"something with {', '.join(missing)}")
    return found


def storage_of(
    fsync: str, fsync_interval_ms: int, min_free_bytes: int | None, cache_bytes: int | None
) -> StorageConfig:
    """Settings as a caller writes them; None takes the default."""
    policies = {policy.value: policy for policy in FsyncPolicy}
    if fsync not in tuple(
        policies
    ):  # Not in the dict itself: it would ask for a hash, which a list has not.
        raise InvalidConfig("fsync", fsync, " or ".join(policies))
    interval_ms = whole_number("fsync_interval_ms", fsync_interval_ms)
    storage = StorageConfig(fsync=policies[fsync], fsync_interval_ms=interval_ms)
    if min_free_bytes is not None:
        storage = replace(storage, min_free_bytes=whole_number("min_free_bytes", min_free_bytes))
    if cache_bytes is not None:
        storage = replace(storage, cache_bytes=whole_number("cache_bytes", cache_bytes))
    return storage


def _memory() -> Disk:
    from ..sim import SimDisk

    return SimDisk(is_forgetful=True)


def _nothing() -> None:
    return
