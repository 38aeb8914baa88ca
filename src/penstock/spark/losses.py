"""Errors of a query whose messages were removed, or are not those that it began with."""

import logging

from ..errors import Refused

_LOG = logging.getLogger("penstock.spark")
_GO_ON = "Set failOnDataLoss=false to go on without them."


class DataLoss(Refused):
    """Messages were removed before the query read them."""

    code = "DATA_LOSS"


def pass_over(loss: DataLoss, *, is_fatal: bool) -> None:
    """Raise a loss that is fatal; log any other one, which says which offsets the query goes on without."""
    if is_fatal:
        raise loss
    _LOG.warning("failOnDataLoss=false: %s", str(loss).removesuffix(_GO_ON).rstrip())


def lost_by_retention(key: str, wanted: int, earliest: int) -> DataLoss:
    return DataLoss(
        f"{key}: {earliest - wanted} messages are gone before they were read: wanted offset {wanted}, "
        f"the earliest is {earliest} now. Retention was faster than this query. {_GO_ON}",
        partition=key,
        wanted=wanted,
        earliest=earliest,
    )


def lost_by_damage(key: str, first: int, end: int) -> DataLoss:
    return DataLoss(
        f"{key}: offsets {first} to {end - 1} are damaged in the broker's files, and the topic has on_damage=skip. "
        f"{_GO_ON}",
        partition=key,
        first=first,
        end=end,
    )


def lost_by_shrinking(key: str, wanted: int, latest: int, *, is_same: bool) -> DataLoss:
    why = (
        "The broker lost the end of its log, or its data was replaced"
        if is_same
        else "The topic was deleted and made again"
    )
    return DataLoss(
        f"{key}: the query is at offset {wanted}, the partition ends at {latest} now. {why}. {_GO_ON}",
        partition=key,
        wanted=wanted,
        latest=latest,
    )


def topic_deleted(name: str) -> DataLoss:
    return DataLoss(
        f"topic {name} is gone: it was deleted while the query read it. "
        "Start a new query with a new checkpoint, or leave the topic out.",
        topic=name,
    )


def checkpoint_of_another(names: list[str], asked: str) -> Refused:
    return Refused(
        f"the checkpoint belongs to a query over {', '.join(names)[:200]}, this one reads {asked[:200]}: "
        "give it another checkpointLocation",
        topics=names,
    )
