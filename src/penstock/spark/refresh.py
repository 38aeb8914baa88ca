"""Plans tables of topics again: Spark keeps what a Python source planned for as long as a DataFrame lives."""

from typing import TYPE_CHECKING, Any

from ..errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TABLE = "PythonTable"


def refresh(frame: "DataFrame") -> "DataFrame":
    """The same table, whose next action reads what its topics have by then. So do those of the same `load()`.

    Refused: no Python source is read, or the session is one of Spark Connect, whose plans are on its server.
    """
    if not hasattr(frame, "_jdf"):
        raise Refused("refresh needs a session that is not Spark Connect: load the topic again")
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    tables = [
        leaf.table()
        for leaf in (leaves.apply(place) for place in range(leaves.size()))
        if leaf.getClass().getSimpleName() == "DataSourceV2Relation"
        and leaf.table().getClass().getSimpleName() == _TABLE
    ]
    if not tables:
        raise Refused("refresh needs a table that reads a topic")
    for table in tables:
        _forget_plan(table)
    # Spark keeps a plan with the DataFrame, too, once that was carried out.
    return frame.select("*")


def _forget_plan(table: Any) -> None:
    """Have Spark ask the source for tasks again. Its API has no such call; the class has, behind a private field."""
    source = table.getClass().getDeclaredField("ds")
    source.setAccessible(True)
    source.get(table).setReadInfo(None)
