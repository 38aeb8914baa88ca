"""Reports the progress of a pipeline to the broker every few seconds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event, Thread
from types import TracebackType
from typing import NamedTuple, Self

from ...api.json.pipelines import Kind, PipelineIn, State
from ...client.pipelines import report_pipeline
from ...errors import PenstockError
from .archive import PipelineProgress
from .remote import Remote

EVERY_S = 5.0
STARTING: State = "starting"
_EXPECT_WITHIN = "20s"
_TEXT_CHARACTERS_MAX = 1000

OnProgress = Callable[[PipelineProgress], None]


class PipelineIdentity(NamedTuple):
    """What a report says of a pipeline besides its progress."""

    name: str
    kind: Kind
    topics: Sequence[str]
    target: str


class Reporter:
    """Reports the last progress from the first one to the end of the block, and then how it ended.

    A pipeline that is refused before it tells of any progress reports nothing, so that the broker keeps the report of
    the last run. A report that fails is dropped: the next one follows, and the pipeline goes on.
    """

    def __init__(
        self, pipeline: PipelineIdentity, remote: Remote, tell: OnProgress = lambda _: None
    ) -> None:
        self._pipeline, self._tell = pipeline, tell
        self._remote = replace(remote, retries=0)
        self._last = PipelineProgress(STARTING, 0, 0, 0)
        self._has_begun = False
        self._stop = Event()
        self._thread = Thread(target=self._run, name="pipeline-report", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._has_begun:
            return
        self._stop.set()
        self._thread.join()
        state: State = "stopped" if error is None or kind is KeyboardInterrupt else "failed"
        self._send(replace(self._last, state=state, error=str(error or "")))

    def __call__(self, progress: PipelineProgress) -> None:
        self._last = progress
        if not self._has_begun:
            self._has_begun = True
            self._thread.start()
        if progress.state != STARTING:
            self._tell(progress)

    def begin(self) -> None:
        """Report that the pipeline begins: from here on it is not refused."""
        self(PipelineProgress(STARTING, 0, 0, 0))

    def _run(self) -> None:
        # The audit log has the beginning also of a pipeline that is done before this thread runs.
        self._send(PipelineProgress(STARTING, 0, 0, 0))
        while not self._stop.wait(EVERY_S):
            self._send(self._last)

    def _send(self, progress: PipelineProgress) -> None:
        current = PipelineIn(
            kind=self._pipeline.kind,
            state=progress.state,
            topics=list(self._pipeline.topics),
            target=self._pipeline.target[:_TEXT_CHARACTERS_MAX],
            messages=progress.messages,
            commits=progress.commits,
            lag=progress.lag,
            rate=progress.rate,
            batch_ms=progress.batch_ms,
            files=progress.files,
            bytes=progress.bytes,
            error=progress.error[:_TEXT_CHARACTERS_MAX],
            expect_within=_EXPECT_WITHIN,
        )
        try:
            with self._remote.connect() as client:
                report_pipeline(client, self._pipeline.name, current)
        except PenstockError:
            return
