"""The page of DuckDB and dbt over a lake: its queries and its project run, where they are installed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.client import Client
from penstock.testing.server import running_server

pytestmark = pytest.mark.tier("test")
duckdb = pytest.importorskip("duckdb")
PAGE = Path(__file__).parents[1] / "docs" / "recipes" / "arrow.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A lake of orders that is added to by `archive`, and the project beside it as the page writes it."""
    monkeypatch.chdir(tmp_path)
    project = tmp_path / "project"
    (project / "models").mkdir(parents=True)
    profiles, own, lake = blocks("yaml")
    (project / "profiles.yml").write_text(profiles)
    (project / "dbt_project.yml").write_text(own)
    (project / "models" / "lake.yml").write_text(lake)
    customers, orders = blocks("sql")
    (project / "models" / "customers.sql").write_text(customers)
    (project / "models" / "orders.sql").write_text(orders)
    with running_server(tmp_path / "data") as url, Client(url) as client:
        client.create_topic("orders", partitions=2)

        def archive(count):
            for number in range(count):
                client.publish("orders", json={"price": number}, key=f"customer {number % 3}")
            words = ["archive", "run", "orders", "--to", "lake", "--once", "--server", url]
            subprocess.run([sys.executable, "-m", "penstock", *words], check=True)

        yield archive


def test_duckdb_reads_a_lake_as_the_page_says(shop):
    shop(9)
    (query,) = re.findall(r'duckdb.sql\("""(.*?)"""\)', PAGE.read_text(), re.DOTALL)
    rows = duckdb.sql(query).fetchall()
    assert sorted(rows) == [("customer 0", 9), ("customer 1", 12), ("customer 2", 15)]


def test_the_dbt_project_of_the_page_builds_and_takes_what_is_new(shop):
    pytest.importorskip("dbt.adapters.duckdb")
    (build,) = (line for line in blocks("sh") if line.startswith("dbt "))
    for more, total in ((9, 9), (9, 18), (0, 18)):
        shop(more)
        command = f"{Path(sys.executable).parent}/{build}"
        subprocess.run(command, shell=True, cwd="project", check=True)
        with duckdb.connect("project/shop.duckdb") as built:
            assert built.sql("SELECT count(*) FROM orders").fetchone() == (total,)
            assert built.sql("SELECT sum(orders) FROM customers").fetchone() == (total,)
