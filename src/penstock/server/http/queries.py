"""Files of messages for those who see the disk: the answer says where the server has its directory."""

from pathlib import Path

import msgspec

from ...api.json.queries import FilesIn, FilesOut
from ...api.json.times import span_ms
from ...api.principals import Action, Role
from ...api.queries import (
    HoldFiles,
)
from ...errors import BadRequest, NotFound, OffsetOutOfRange
from .requests import Request
from .responses import Answer, json_response
from .routing import Route, TopicIn

_FILES = msgspec.json.Decoder(FilesIn)
_HOLD_MS_MAX = 3_600_000


async def files(request: Request) -> Answer:
    """The files of a range, for clients that see the disk; the files stay for a while."""
    sent = request.json(_FILES)
    topic, number = request.params["topic"], int(request.params["partition"])
    hold_ms = span_ms("hold", sent.hold)
    if hold_ms > _HOLD_MS_MAX:
        raise BadRequest(f"hold may be {_HOLD_MS_MAX} ms, got {hold_ms}", field="hold")

    held = await request.execute(HoldFiles(topic, number, sent.offset, sent.end, hold_ms))
    return json_response(FilesOut(_data_dir(request), held.seed, held.files))


def _data_dir(request: Request) -> str | None:
    if request.principal.role is Role.READONLY:
        return None
    return str(Path(request.app.settings.broker.data_dir).absolute())


ROUTES = (
    Route(
        method="POST",
        path="/topics/{topic}/partitions/{partition}/files",
        call=files,
        action=Action.FETCH,
        summary="Files of a range of messages, kept for a while, for those who see the disk",
        tag="read",
        body=FilesIn,
        answer=FilesOut,
        errors=(NotFound, OffsetOutOfRange),
        topic_in=TopicIn.PATH,
    ),
)
