"""Spark writes into a topic, and works off a queue. Broker, JVM and Python workers share the machine.

The sink has two things to do: to take Arrow batches from Spark, and to stage them. Its baseline does each alone, one
after the other: a writer that discards what Spark hands it, and a client that stages batches which are ready.
"""

import time
from functools import cache
from statistics import median
from typing import TYPE_CHECKING

from penstock.client import Client
from penstock.codec import Columns, encode

from .measure import FULL, Effort
from .report import Case, CaseResult, Unit, on_ratio, on_value
from .server_process import broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TURNS = 3
WARM_TURNS = 2
ROWS, ROWS_QUICK = 2_000_000, 200_000
PARTITIONS = 2
WORK_MESSAGES, WORK_MESSAGES_QUICK = 1_000_000, 200_000
VALUE_BYTES = 100
BATCH_MESSAGES = 10_000
# The defaults are 10,000 for a group and 1,000 for a consumer, on each partition.
IN_FLIGHT = 100_000
ROUND_MESSAGES = 100_000


@cache
def session_here() -> "SparkSession":
    from penstock.spark import session

    from .spark_standin import Discarding, StandIn

    spark = session("penstock bench", master="local[2]")
    for one in (StandIn, Discarding):
        spark.dataSource.register(one)
    return spark


def measure_sink(effort: Effort) -> CaseResult:
    rows = ROWS if effort is FULL else ROWS_QUICK
    times: dict[str, list[float]] = {"sink": [], "discard": [], "stage": []}
    with broker() as server:
        url = f"penstock://127.0.0.1:{server.binary_port}"
        with Client(url) as client:
            for turn in range(WARM_TURNS + TURNS):
                # The first contender changes: a JVM that compiles, or a disk that is busy, hits each in its turn.
                names = [*times][turn % 3 :] + [*times][: turn % 3]
                for name in names:
                    client.create_topic("written", partitions=PARTITIONS)
                    times[name].append(_CONTENDERS[name](client, url, rows))
                    client.delete_topic("written")
    found = {name: turns[WARM_TURNS:] for name, turns in times.items()}
    both = [one + other for one, other in zip(found["discard"], found["stage"], strict=True)]
    pairs = [other / one for one, other in zip(found["sink"], both, strict=True)]
    settings = {
        "messages": rows,
        "value_bytes": VALUE_BYTES,
        "columns": "key, value",
        "tasks": 2,
        "seconds": {name: [round(one, 2) for one in turns] for name, turns in found.items()},
        "pairs": [round(one, 3) for one in pairs],
    }
    # Medians: a shared machine changes its speed, and the best of each would be of different moments.
    return CaseResult(rows / median(found["sink"]), rows / median(both), settings=settings)


def write_sink(client: Client, url: str, rows: int) -> float:
    frame = session_here().read.format("standin").option("rows", str(rows)).load()
    writer = frame.select("key", "value").write.format("penstock").options(url=url, topic="written")
    start_s = time.perf_counter()
    writer.mode("append").save()
    took_s = time.perf_counter() - start_s
    assert client.topic("written").total_messages == rows, "all of it is there"
    return took_s


def discard(_client: Client, _url: str, rows: int) -> float:
    frame = session_here().read.format("standin").option("rows", str(rows)).load()
    writer = frame.select("key", "value").write.format("discarding")
    start_s = time.perf_counter()
    writer.mode("append").save()
    return time.perf_counter() - start_s


def stage(client: Client, _url: str, rows: int) -> float:
    from penstock.spark.sink_batches import columns_of_rows

    from .spark_standin import ROWS_A_BATCH, ready_batch

    columns = columns_of_rows(ready_batch(ROWS_A_BATCH).select(["key", "value"]), time.time_ns())
    start_s = time.perf_counter()
    with client.staging("bench", int(time.time() * 1000), "bench") as staging:
        for number in range(rows // ROWS_A_BATCH):
            staging.stage_columns("written", number % PARTITIONS, columns)
    handle = staging.handle
    client.commit_stagings(handle.name, handle.sequence, handle.writer, [handle])
    took_s = time.perf_counter() - start_s
    assert client.topic("written").total_messages == rows, "all of it is there"
    return took_s


_CONTENDERS = {"sink": write_sink, "discard": discard, "stage": stage}


def measure_work(effort: Effort) -> CaseResult:
    """Messages a second through rounds that publish each of them again; the median of some turns."""
    from penstock.spark import work

    messages = WORK_MESSAGES if effort is FULL else WORK_MESSAGES_QUICK
    spark, rates, rounds = session_here(), list[float](), 0
    with broker() as server:
        url = f"penstock://127.0.0.1:{server.binary_port}"
        with Client(url) as client:
            for turn in range(WARM_TURNS + TURNS):
                fill_queue(client, messages)
                start_s = time.perf_counter()
                done = work(
                    spark,
                    "queue",
                    f"bench-{turn}",
                    lambda rows: rows.select("key", "value"),
                    to="done",
                    url=url,
                    once=True,
                    round_messages=ROUND_MESSAGES,
                )
                rates.append(messages / (time.perf_counter() - start_s))
                assert (done.messages, done.outputs) == (messages, messages), "all of it is done"
                rounds = done.rounds
                for name in ("queue", "done"):
                    client.delete_topic(name)
    settings = {
        "messages": messages,
        "value_bytes": VALUE_BYTES,
        "partitions": PARTITIONS,
        "max_in_flight": IN_FLIGHT,
        "max_in_flight_per_consumer": IN_FLIGHT,
        "rounds": rounds,
        "rates": [round(one) for one in rates[WARM_TURNS:]],
    }
    return CaseResult(median(rates[WARM_TURNS:]), settings=settings)


def fill_queue(client: Client, messages: int) -> None:
    client.create_topic("done", partitions=PARTITIONS)
    client.create_topic(
        "queue",
        partitions=PARTITIONS,
        max_in_flight=IN_FLIGHT,
        max_in_flight_per_consumer=IN_FLIGHT,
    )
    values = [b"%0*d" % (VALUE_BYTES, row) for row in range(BATCH_MESSAGES)]
    keys = [b"%04d" % (row % 1000) for row in range(BATCH_MESSAGES)]
    batch = encode(Columns(values=values, keys=keys, timestamps=time.time_ns())).to_bytes()
    for number in range(messages // BATCH_MESSAGES):
        client.append_batch("queue", number % PARTITIONS, batch)


CASES = (
    Case(
        name="sink",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_sink,
        baseline="a discarding writer, then bare staging",
        goal=on_ratio(">=0.7"),
    ),
    Case(
        name="work",
        unit=Unit.MESSAGES_PER_S,
        measure=measure_work,
        goal=on_value(">=50000"),
    ),
)
