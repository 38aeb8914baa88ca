"""Reports of pipelines as JSON."""

from typing import Literal

import msgspec

from ...errors import BadRequest
from .messages import Int64, Strict
from .times import Span, span_ms

_TEXT_CHARACTERS_MAX = 1000


_TOPICS_MAX = 100


_EXPECTED_MS_MIN, _EXPECTED_MS_MAX = 1000, 3_600_000


State = Literal["starting", "running", "waiting", "stopped", "failed"]
Kind = Literal[
    "archive",
    "stream",
    "load",
    "sql",
    "replay",
    "copy",
    "export",
    "import",
    "work",
    "restore",
    "compact",
    "vacuum",
]


class PipelineIn(Strict):
    """How a pipeline is. `expect_within`: if the next report takes longer, it counts as lost.

    Counts are since the pipeline started; `lag` is how many messages it has still to do, `skipped` how many were gone
    before they were read. `rate`, in messages a second, and `batch_ms` are of its last commit. `files` and `bytes` are
    what it wrote into a lake, merged there or removed from it.
    """

    kind: Kind
    state: State
    topics: list[str] = msgspec.field(default_factory=list)
    target: str = ""
    messages: Int64 = 0
    commits: Int64 = 0
    lag: Int64 = 0
    rate: float = 0.0
    batch_ms: Int64 = 0
    skipped: Int64 = 0
    files: Int64 = 0
    bytes: Int64 = 0
    error: str = ""
    expect_within: Span = "30s"


class PipelineOut(msgspec.Struct, kw_only=True):
    """The last report. `state` is `lost` if the next one should have been here.

    `committed_at`: when the report came that told of its last commit; null before the first.
    """

    name: str
    kind: str
    state: str
    topics: list[str]
    target: str
    messages: int
    commits: int
    lag: int
    rate: float
    batch_ms: int
    skipped: int
    files: int
    bytes: int
    error: str
    reported_at: str
    seconds_ago: float
    committed_at: str | None


class PipelinesOut(msgspec.Struct):
    pipelines: list[PipelineOut]
    cursor: str | None


def checked_expectation_ms(said: PipelineIn) -> int:
    """How long until the next report, in milliseconds."""
    for name in ("target", "error"):
        if len(getattr(said, name)) > _TEXT_CHARACTERS_MAX:
            text = f"{name} has {len(getattr(said, name))} characters, the limit is {_TEXT_CHARACTERS_MAX}"
            raise BadRequest(text, field=name)
    if len(said.topics) > _TOPICS_MAX:
        raise BadRequest(f"{len(said.topics)} topics, the limit is {_TOPICS_MAX}", field="topics")
    for name in ("messages", "commits", "lag", "rate", "batch_ms", "skipped", "files", "bytes"):
        if getattr(said, name) < 0:
            raise BadRequest(f"{name} must be at least 0, got {getattr(said, name)}", field=name)
    expect_ms = span_ms("expect_within", said.expect_within)
    if not _EXPECTED_MS_MIN <= expect_ms <= _EXPECTED_MS_MAX:
        raise BadRequest(
            f"expect_within must be in 1s..1h, got {said.expect_within!r}", field="expect_within"
        )
    return expect_ms
