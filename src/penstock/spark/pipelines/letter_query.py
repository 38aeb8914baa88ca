"""Dead letters that a query selects: `penstock dlq redrive --sql`."""

from typing import TYPE_CHECKING

from ...api.dead_letters import DEAD_LETTER_SUFFIX
from ...errors import Refused
from .replay_sql import broker_options
from .spark_errors import spark_errors
from .views import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .remote import Remote

VIEW = "letters"
# One request names all of them.
LETTERS_MAX = 100_000


def letters_topic(topic: str) -> str:
    """Returns the topic that has the dead letters of another one."""
    return topic if topic.endswith(DEAD_LETTER_SUFFIX) else topic + DEAD_LETTER_SUFFIX


def selected_letters(
    spark: "SparkSession", remote: "Remote", topic: str, query: str
) -> list[tuple[int, int]]:
    """Returns partition and offset of the letters that a query selects.

    Refused: the query is wrong, has no columns partition and offset, or selects none or too many.
    """
    options = {
        **broker_options(remote),
        "subscribe": letters_topic(topic),
        "columns": "partition,offset,timestamp,key,value,headers,priority,dead_letter",
    }
    with spark_errors("--sql"):
        rows = spark.read.format(FORMAT).options(**options).load()
        # What is no dead letter, such as a message that was published there, cannot be redriven.
        known = rows.where("dead_letter IS NOT NULL").select("*", "dead_letter.*")
        known.drop("dead_letter").createOrReplaceTempView(VIEW)
        asked = spark.sql(query)
        names = [one.lower() for one in asked.columns]
        if names.count("partition") != 1 or names.count("offset") != 1:
            raise Refused(
                f"--sql: the columns partition and offset are needed; there are {', '.join(names)[:200]}"
            )
        found = asked.select("partition", "offset").distinct().limit(LETTERS_MAX + 1).collect()
    if not found:
        raise Refused("the query selects no dead letter: nothing was sent back")
    if len(found) > LETTERS_MAX:
        raise Refused(f"the query selects more than {LETTERS_MAX:,} dead letters: add a LIMIT")
    try:
        return sorted((int(one[0]), int(one[1])) for one in found)
    except (TypeError, ValueError):
        raise Refused("--sql: partition and offset must be numbers, those of letters") from None
