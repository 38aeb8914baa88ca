"""A pipeline tells the broker how it is, every few seconds, whatever else it does."""

from collections.abc import Callable
from dataclasses import replace
from threading import Event, Thread
from types import TracebackType
from typing import Self

from ...client.pipelines import PipelineReport, report
from ...errors import PenstockError
from .archive import Progress
from .model import Pipeline
from .remote import Remote

EVERY_S = 5.0
_EXPECT_WITHIN = "20s"
_TEXT_CHARACTERS_MAX = 1000

Tell = Callable[[Progress], None]


class Reporter:
    """Reports the last progress until the end of the block, and then how it ended.

    It never gets in the way: a broker that is away, or does not know pipelines, is left in peace until the next time.
    """

    def __init__(self, pipeline: Pipeline, remote: Remote, tell: Tell = lambda _: None) -> None:
        self._pipeline, self._tell = pipeline, tell
        self._remote = replace(remote, retries=0)
        self._last = Progress("starting", 0, 0, 0)
        self._stop = Event()
        self._thread = Thread(target=self._run, name="pipeline-report", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        state = "stopped" if error is None or kind is KeyboardInterrupt else "failed"
        last = self._last
        self._send(Progress(state, last.messages, last.commits, last.lag, str(error or "")))

    def __call__(self, progress: Progress) -> None:
        self._last = progress
        self._tell(progress)

    def _run(self) -> None:
        while True:
            self._send(self._last)
            if self._stop.wait(EVERY_S):
                return

    def _send(self, progress: Progress) -> None:
        said = PipelineReport(
            kind=self._pipeline.kind.value,
            state=progress.state,
            topics=list(self._pipeline.topics),
            target=self._pipeline.target[:_TEXT_CHARACTERS_MAX],
            messages=progress.messages,
            commits=progress.commits,
            lag=progress.lag,
            error=progress.error[:_TEXT_CHARACTERS_MAX],
            expect_within=_EXPECT_WITHIN,
        )
        try:
            with self._remote.connect() as client:
                client.run(report(self._pipeline.name, said))
        except PenstockError:
            return  # The next report is a few seconds away.
