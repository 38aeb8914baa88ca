"""`penstock replay --group`: a part of a topic once more to one group alone, which goes back in the log."""

from typing import TYPE_CHECKING, Any

from ..errors import Refused

if TYPE_CHECKING:
    from ..client import Client
    from .transfer import Selection

MOVES = ["partition", "floor_before", "floor_after", "in_flight"]


def go_back(
    client: "Client", source: str, group: str, asked: "Selection", *, is_dry_run: bool
) -> list[dict[str, Any]]:
    """Moves a group back to where the selection begins. Returns a row for each partition that moves, or would.

    A partition whose messages the group has still to read stays as it is: moved forward, it would lose them. Refused:
    the log has lost the beginning, or the group has read nothing of it.
    """
    partitions = None if asked.partition is None else [asked.partition]
    if asked.start != "earliest":
        numbers = range(client.topic(source).partitions) if partitions is None else partitions
        for number in numbers:
            _require_in_log(client, source, group, number, asked.start)
    planned = client.reset(group, asked.start, topic=source, partitions=partitions, dry_run=True)
    back = [one for one in planned if one["floor_after"] < one["floor_before"]]
    if not back:
        raise Refused(f"group {group} has still to read all of that range of {source}")
    if is_dry_run:
        return back
    chosen = [one["partition"] for one in back]
    return client.reset(group, asked.start, topic=source, partitions=chosen)


def _require_in_log(
    client: "Client", source: str, group: str, partition: int, start: int | str
) -> None:
    log = client.fetch(source, partition, limit=1, max_bytes=1)
    if isinstance(start, int):
        is_lost = start < log.earliest
    else:
        found = client.fetch(source, partition, from_time=start, limit=1, max_bytes=1)
        # All that the log has is from that time on, and it has lost what was before: perhaps from that time, too.
        is_lost = 0 < log.earliest == found.offset
    if is_lost:
        raise Refused(
            f"the log of {source}/{partition} begins at offset {log.earliest}, and the range before it: replay it "
            f"with --lake --to a topic that group {group} alone reads, or --from earliest for what the log has"
        )
