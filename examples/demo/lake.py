"""The last part of the demo: the shop's orders go into a lake through Spark, and a query is asked."""

from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.client import Client

from . import orders as wares
from .broker import BrokerProcess
from .scene import Scene, Stage, waiting
from .workers import ORDERS_TOPIC

if TYPE_CHECKING:
    from .lake_query import LakeResult


def lake_scenes(stage: Stage) -> Iterator[Scene]:
    if any(find_spec(name) is None for name in ("pyspark", "pyarrow")):
        yield skipped("Spark is not installed: pip install 'penstock[spark]'")
        return
    from penstock.spark.java import NoJava

    from .lake_query import lake

    with BrokerProcess(stage.directory / "broker") as broker:
        with Client(broker.address) as client:
            open_shop(client)
        stage.say("the orders go into a lake, through Spark, which takes some seconds to start")
        try:
            with waiting("Spark archives the orders and answers a query", stage):
                shown = lake(broker.address, stage.directory)
        except NoJava as error:
            yield skipped(str(error))
            return
    yield of_lake(shown, is_kept=stage.is_kept)


def skipped(reason: str) -> Scene:
    return Scene("lake", "A lake of orders", [("left out", reason)], {"left_out": reason})


def open_shop(client: Client) -> None:
    """Returns a broker with the orders of the part before, or with new ones if it did not run."""
    if ORDERS_TOPIC in client.topics():
        return
    client.create_topic(ORDERS_TOPIC, partitions=3)
    client.publish_many(ORDERS_TOPIC, [one.outgoing for one in wares.orders()])


def of_lake(shown: "LakeResult", *, is_kept: bool) -> Scene:
    first, *rest = shown.table.splitlines()
    found = "; ".join(shown.problems) if shown.problems else "nothing missing, nothing twice"
    lines = [
        ("archived", f"{shown.messages:,} of {shown.published:,} orders in {shown.archive_s:g} s"),
        ("verified", f"{shown.files} files of {shown.commits} commits against the broker: {found}"),
        ("asked in SQL", f"{shown.query_s:g} s"),
        ("", first),
        *(("", line) for line in rest),
    ]
    if is_kept:
        lines.append(("lake", shown.lake))
    if is_kept and shown.plot:
        lines.append(("picture", shown.plot))
    facts = {name: one for name, one in asdict(shown).items() if name != "table"}
    return Scene("lake", "A lake of orders", lines, facts, is_good=shown.is_good)
