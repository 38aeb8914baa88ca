"""Makes Spark sessions, with defaults that suit a broker's data."""

import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..errors import Refused
from .java import cache_folder, find_java, replace_file
from .python_shim import shim_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Large enough that the cost of a batch is small, small enough that two of them need little memory.
ARROW_ROWS = 20_000
_LOOPBACK = "127.0.0.1"
_LOOPBACK_NAMES = frozenset({"localhost", "::1", _LOOPBACK})
LOG_SETTINGS = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{short}
# An executor that leaves says so at length, and its tasks run again elsewhere.
logger.shutdown.name = org.apache.spark.util.ShutdownHookManager
logger.shutdown.level = off
# A client of Spark Connect is told what went wrong with its call. A run of spark-pipelines that went well may end with
# such a call behind the end of its session, and nobody is told anything by that.
logger.connect.name = org.apache.spark.sql.connect.utils.ErrorUtils
logger.connect.level = off
# With another level than the root's, Spark tells at its start how to change it.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


def session(
    app_name: str = "penstock",
    *,
    master: str = "local[*]",
    config: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Returns a session in this process, on a cluster (`spark://...`, `k8s://...`) or of a Connect server (`sc://...`).

    Finds a Java, or uses that of a wheel. `config` holds settings of Spark and wins over the defaults here. If there is
    a session already, it is returned. Refused: Spark is not installed. NoJava: there is no Java.
    """
    if master.startswith("sc://"):
        return _remote(app_name, master, config or {})
    prepare(os.environ, master)
    builder = _spark().builder.appName(app_name).master(master)
    for name, value in (defaults(master, os.environ) | dict(config or {})).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _remote(app_name: str, url: str, config: Mapping[str, str]) -> "SparkSession":
    """Returns a session of a Connect server, which has its own Java and defaults."""
    builder = _spark().builder.remote(url).appName(app_name)
    for name, value in config.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _spark() -> "type[SparkSession]":
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise Refused("Spark is not installed: pip install 'penstock[spark]'") from None
    return SparkSession


def prepare(environment: MutableMapping[str, str], master: str = "local[*]") -> None:
    """Set the variables that Spark reads before its JVM starts. Those that the user set stay. NoJava."""
    java = find_java(environment)
    environment["JAVA_HOME"] = str(java.home)
    # Executors on other machines run the same path, and the shim is not there.
    is_here = is_on_this_machine(master)
    python = shim_of(sys.executable, environment) if is_here else sys.executable
    # Without the first, workers run in the system's Python, which does not have the packages. The second is that of the
    # processes which plan and commit for a source that Spark finds by itself, as it does ours.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment.setdefault(name, python)
    if is_here:
        environment.setdefault("SPARK_LOCAL_IP", _LOOPBACK)


def is_on_this_machine(master: str) -> bool:
    """Whether all of Spark runs on this machine, so that it only has to listen here."""
    return master.startswith("local") or urlsplit(master).hostname in _LOOPBACK_NAMES


def defaults(master: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of a session that the user can override."""
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
    }
    if is_on_this_machine(master):
        chosen["spark.driver.host"] = _LOOPBACK
        chosen["spark.driver.bindAddress"] = _LOOPBACK
        # Adaptive execution merges small shuffle partitions, but each still costs a file and a task to plan.
        chosen["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
        # Leaves `spark.driver.extraJavaOptions`, which is added to it, to the user.
        chosen["spark.driver.defaultJavaOptions"] = (
            f"-Dlog4j2.configurationFile={_log_settings(environment)}"
        )
    else:
        chosen["spark.log.level"] = "ERROR"
    return chosen


def _log_settings(environment: Mapping[str, str]) -> Path:
    """Returns the path of the log settings. It is a file because Spark logs before it has read its settings."""
    file = cache_folder(environment) / "spark-log4j2.properties"
    if not file.is_file() or file.read_text() != LOG_SETTINGS:
        replace_file(file, LOG_SETTINGS)
    return file
