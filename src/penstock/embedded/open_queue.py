"""`penstock.open`."""

from logging import Logger
from typing import Any

from ..broker.topics import config_from
from ..config import Validation
from ..errors import InvalidConfig, PartitionFaulty, Refused
from ..ports import Clock
from .directory import Path, open_driver, storage_of
from .queue import Queue
from .queue_topic import QUEUE_SETTINGS


def open_queue(
    path: Path,
    *,
    auto_ack: bool = True,
    fsync: str = "interval",
    fsync_interval_ms: int = 1000,
    min_free_bytes: int | None = None,
    cache_bytes: int | None = None,
    clock: Clock | None = None,
    logger: Logger | None = None,
    **settings: Any,
) -> Queue:
    """Open the queue in a directory, making it if there is none. A second process gets AlreadyOpen.

    `auto_ack=False` makes it a work queue: messages are lent, and come back unless they are acked. `fsync` says when
    writes are on the disk: "interval" (every `fsync_interval_ms`), "always" (before each call returns) or "never" (when
    the system likes). Below `min_free_bytes` of free space puts are refused. `cache_bytes` (64 MiB) is memory for
    messages that were read lately.

    `settings` are those of a topic and stay with the queue: `visibility_timeout_ms`, `max_retries`, `backoff_base_ms`,
    `backoff_max_ms`, `ttl_ms`, `ttl_action`, `compression` ("none", "lz4", "zstd"), `dedup_window_ms`,
    `max_backlog_messages`, `retention_hours` of finished messages, `on_damage` ("stop", "skip"), and more: see
    docs/embedded.md.
    """
    if not isinstance(auto_ack, bool):
        raise InvalidConfig("auto_ack", auto_ack, "True or False")
    if path is None:
        raise Refused("a queue needs a directory, not None; penstock.Broker() is one in memory")
    if config_from(QUEUE_SETTINGS | settings).validation is not Validation.NONE:
        raise InvalidConfig("validation", settings["validation"], "none: a queue has no schemas")
    storage = storage_of(fsync, fsync_interval_ms, min_free_bytes, cache_bytes)
    opened = open_driver(path, storage, clock=clock, logger=logger, is_firing=False)
    try:
        return Queue(opened, settings, auto_ack=auto_ack)
    except BaseException as error:
        faults = opened.driver.node.faults()
        opened.driver.close()
        opened.give_up_disk()
        if isinstance(error, PartitionFaulty) and faults:
            # A queue has one partition: what is wrong with that is wrong with the queue.
            raise faults[0].cause.fresh() from None
        raise
