"""The listener that Spark calls. Apart from `progress`, because it needs PySpark to be imported."""

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from .progress import StreamReport, progress_of


class ProgressListener(StreamingQueryListener):
    """Reports one query, by its name, to the broker."""

    def __init__(self, name: str, report: StreamReport) -> None:
        self._name, self._report = name, report
        self._run_id = ""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        # Spark says the name of a query only when it starts and with its progress.
        if event.name == self._name:
            self._run_id = str(event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if event.progress.name == self._name:
            self._report.batch_done(progress_of(event.progress))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if str(event.runId) == self._run_id:
            self._report.ended(event.exception)
