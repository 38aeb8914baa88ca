"""Checks a pipeline and reads its progress, without running it."""

from pathlib import Path
from typing import Any

from ...errors import FileMissing, Refused
from .lake import LakeReader, commit_path
from .ledger import Ledger
from .manifest import decode_manifest
from .model import LakeSink, Pipeline, PipelineKind, PythonTransform, SqlTransform
from .spark_errors import sql_reason
from .views import add_import_folder, import_transform


def transform_problems(pipeline: Pipeline, folder: Path) -> list[str]:
    """Returns a problem for every transform that does not parse or cannot be imported. Starts Spark for SQL."""
    add_import_folder(folder)
    problems = []
    for one in pipeline.transforms:
        if isinstance(one, PythonTransform):
            try:
                import_transform(one)
            except Refused as error:
                problems.append(str(error))
    queries = [one for one in pipeline.transforms if isinstance(one, SqlTransform)]
    return problems + (parse_problems(queries) if queries else [])


def parse_problems(queries: list[SqlTransform]) -> list[str]:
    from pyspark.errors import ParseException

    from ..session import session

    # Only the parser of Spark: it needs neither topics nor views.
    parser = (
        session("penstock validate", master="local[1]")._jsparkSession.sessionState().sqlParser()
    )
    problems = []
    for one in queries:
        try:
            parser.parsePlan(one.sql)
        except ParseException as error:
            reason = sql_reason(str(error).splitlines())
            problems.append(f"transform {one.name}: {reason}")
    return problems


def progress_of(pipeline: Pipeline) -> dict[str, Any]:
    """Returns how far a pipeline is, from its lake or its checkpoint."""
    if pipeline.kind in {PipelineKind.ARCHIVE, PipelineKind.STREAM}:
        return lake_progress(pipeline)
    if pipeline.kind is PipelineKind.LOAD:
        entries = Ledger(Path(pipeline.checkpoint)).all()
        done = [one for one in entries if one.is_done]
        return {
            "files_done": len(done),
            "files_begun": len(entries) - len(done),
            "rows": sum(one.rows for one in done),
        }
    return {}


def lake_progress(pipeline: Pipeline) -> dict[str, Any]:
    sink = pipeline.sinks[0]
    assert isinstance(sink, LakeSink), "the kind of a pipeline follows from its sink"
    try:
        reader = LakeReader(sink.lake)
        state = reader.state()
    except FileMissing:
        return {"commits_in_lake": 0, "rows_in_lake": 0}
    found: dict[str, Any] = {
        "commits_in_lake": state.commits,
        "rows_in_lake": sum(one.rows for one in state.files.values()),
    }
    if state.commits:
        path = commit_path(state.commits - 1)
        found["last_commit_at"] = decode_manifest(reader.store.read(path), path)[0].made_at
    return found | {
        "archived_up_to": {str(name): one.end for name, one in sorted(state.ends.items())}
    }
