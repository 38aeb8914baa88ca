"""Reading by offset or by time: no group, no lease, nothing is finished by it."""

from typing import TypeVar

from msgspec.structs import replace

from ...api.command import Command
from ...api.fetch import Fetch, FetchReply, Read, ReadReply
from ...api.json.fetch import FetchOut, FetchQuery, SkippedOut, start_of
from ...api.json.messages import is_base64_wanted, message_out
from ...api.principals import Action
from ...api.start import Start
from ...errors import BadRequest, DamagedBatch, NotFound, OffsetOutOfRange
from ...runtime.waits import PartitionEnd
from .consume import poll_timeout_ns
from .requests import Request
from .responses import BATCH, Answer, Response, SendfileResponse, json_response
from .routing import Route, TopicIn

Reply = TypeVar("Reply", FetchReply, ReadReply)
_LIMIT_MAX = 10_000
# Stored batches cost the same however many messages they hold.
_LIMIT_MAX_BATCHES = 1_000_000
_BYTES_MAX = 16 << 20
# Of damaged ranges in a header: it has to stay small. They follow each other, so `penstock-offset` says where they end.
_SKIPPED_LISTED_MAX = 50


def asked_of(request: Request) -> FetchQuery:
    """What a request asks for, within the limits."""
    asked = request.query(FetchQuery)
    limit_max = _LIMIT_MAX_BATCHES if request.accepts(BATCH) else _LIMIT_MAX
    if not 1 <= asked.limit <= limit_max:
        raise BadRequest(f"limit must be in 1..{limit_max}, got {asked.limit}", field="limit")
    if not 1 <= asked.max_bytes <= _BYTES_MAX:
        raise BadRequest(
            f"max_bytes must be in 1..{_BYTES_MAX}, got {asked.max_bytes}", field="max_bytes"
        )
    return asked


async def fetch(request: Request) -> Answer:
    """Messages, or with the right Accept the stored batches themselves."""
    asked = asked_of(request)
    is_base64 = is_base64_wanted(asked.encoding)
    topic, partition = request.params["topic"], int(request.params["partition"])
    start, timeout_ns = start_of(asked), poll_timeout_ns(request, asked.timeout)
    if request.accepts(BATCH):
        is_checked = is_checked_here(request)
        batched = Fetch(topic, partition, start, asked.max_bytes, asked.limit, is_checked)
        return batches(await _await_messages(request, batched, timeout_ns))
    command = Read(topic, partition, start, asked.limit, asked.max_bytes)
    found = await _await_messages(request, command, timeout_ns)
    messages = [
        message_out(topic, partition, one, found.delay_ids.get(one.offset), is_base64=is_base64)
        for one in found.messages
    ]
    return json_response(
        FetchOut(
            messages,
            found.next_offset,
            found.start_offset,
            found.end_offset,
            [SkippedOut(*one) for one in found.skipped],
        )
    )


async def _await_messages(request: Request, command: Command[Reply], timeout_ns: int) -> Reply:
    """The reply of a `Fetch` or `Read`; at the end of the partition, the request waits for the next message first."""
    found = await request.execute(command)
    awaited = found.wake_at
    if awaited is None or not timeout_ns:
        return found
    topic, partition = request.params["topic"], int(request.params["partition"])
    with request.ends_with_client():
        await request.app.driver.until(PartitionEnd(topic, partition), awaited, timeout_ns)
    # All requests that waited are answered together.
    request.app.send_budget.require_room()
    return await request.execute(replace(command, start=Start.at_offset(awaited)))


def is_checked_here(request: Request) -> bool:
    """Whether batches are checked before they are sent: unless the client does it, and they need not be read for it."""
    is_client = request.accepts(BATCH) and request.header(b"penstock-checked-by") == b"client"
    return not is_client or request.connection.is_tls


def batches(fetched: FetchReply) -> Response | SendfileResponse:
    """Whole batches as they are stored. The first may begin below the offset: readers trim.

    What was skipped because it is damaged is told by a header of its own, as FROM-TO, separated by commas.
    """
    headers = [
        (b"penstock-offset", b"%d" % fetched.offset),
        (b"penstock-next-offset", b"%d" % fetched.next_offset),
        (b"penstock-earliest", b"%d" % fetched.start_offset),
        (b"penstock-latest", b"%d" % fetched.end_offset),
        # Checksums of heads are seeded with the log's identity.
        (b"penstock-seed", b"%d" % fetched.seed),
    ]
    if fetched.skipped:
        ranges = [b"%d-%d" % (one.start, one.end) for one in fetched.skipped[:_SKIPPED_LISTED_MAX]]
        headers.append((b"penstock-skipped", b",".join(ranges)))
    if fetched.file_range is not None:
        return SendfileResponse(fetched.file_range, BATCH, headers)
    # Not copied: what was read from a file is never written into.
    return Response(fetched.data, 200, BATCH, headers)


ROUTES = (
    Route(
        method="GET",
        path="/topics/{topic}/partitions/{partition}/messages",
        call=fetch,
        action=Action.FETCH,
        summary="Read messages by offset or time",
        tag="read",
        query=FetchQuery,
        answer=FetchOut,
        other_answers={BATCH.decode(): "stored batches, if the client accepts that"},
        errors=(NotFound, OffsetOutOfRange, DamagedBatch),
        topic_in=TopicIn.PATH,
    ),
)
