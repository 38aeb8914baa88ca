"""Makes a project for `spark-pipelines`: a topic as a table, the latest row of each key, and a sink into a topic.

Spark takes the folders of a project as whole paths, and settings of a catalogue from its own configuration folder only:
they cannot be changed in a session that runs. So the project has such a folder, and `env.sh` names it.
"""

import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from ..errors import Refused
from ..model import check_name
from .session import LOG_SETTINGS, defaults

_SPEC = Template("""\
# What `spark-pipelines` runs. Settings for Spark itself are in conf/spark-defaults.conf.
name: $name
storage: file://$folder/storage
libraries:
  - glob:
      include: transformations/**
""")
_ENVIRONMENT = Template("""\
# `. $folder/env.sh` finds Python and Java for Spark, and names the settings of this project.
export PATH=$programs:"$$PATH"
eval "$$(python -m penstock.spark)"
export SPARK_CONF_DIR=$folder/conf
""")
_SETTINGS = Template("""\
# Tables are known from one run to the next: by Derby, from Spark's own jars, in catalogue/. One process at a time can
# open it. For several, name another catalogue here, such as a Hive metastore.
spark.sql.catalogImplementation hive
spark.sql.warehouse.dir $folder/catalogue/warehouse
spark.hadoop.javax.jdo.option.ConnectionURL jdbc:derby:;databaseName=$folder/catalogue/metastore;create=true
spark.driver.extraJavaOptions -Dderby.stream.error.file=$folder/derby.log
spark.connect.grpc.binding.address 127.0.0.1
""")
_TABLES = Template('''\
"""The tables of this pipeline, for `spark-pipelines`. Yours to change."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import max_by, struct

spark = SparkSession.active()
BROKER = $broker


def messages() -> DataFrame:
    """The topic as a stream, from its beginning."""
    stream = spark.readStream.format("penstock").options(**BROKER)
    return stream.options(subscribe=$topic, startingOffsets="earliest").load()


@dp.table(comment="Every message, once.")
def $table() -> DataFrame:
    return messages()


@dp.materialized_view(comment="The latest row of each key.")
def ${table}_latest() -> DataFrame:
    rows = spark.read.table("$table").where("key IS NOT NULL")
    # A key has one partition, whose offsets are its order. After partitions were added: struct("timestamp", "offset").
    latest = rows.groupBy("key").agg(max_by(struct("*"), "offset").alias("row"))
    return latest.select("row.*")


# With the sinkId nothing is published twice: a full refresh of this flow is refused.
# Without it, a full refresh publishes everything again.
dp.create_sink("${table}_sink", "penstock", {**BROKER, "topic": $target, "sinkId": $name})


@dp.append_flow(target="${table}_sink")
def ${table}_out() -> DataFrame:
    # From the topic, not from the table: a full refresh of the table writes its files anew,
    # and a stream from the table would send them again.
    return messages().selectExpr("key", "upper(CAST(value AS STRING)) AS value")
''')
_IGNORED = "catalogue/\nstorage/\nderby.log\n"
# Spark, Hive and Derby each read paths out of longer texts, with quoting of their own.
_PLAIN_PATH = re.compile(r"[\w./@+-]+")


@dataclass(frozen=True, kw_only=True)
class Project:
    """What a project is made of. `broker` are options of the source and the sink, such as `url`."""

    name: str
    topic: str
    target: str
    broker: Mapping[str, str]

    @property
    def table(self) -> str:
        """The topic as a name that Python and SQL take."""
        found = re.sub(r"[^a-z0-9]", "_", self.topic.lower())
        return found if found[0].isalpha() else f"t_{found}"


def make_project(folder: Path, project: Project) -> None:
    """Writes the project, all of it or nothing. Refused: the folder is there, or Spark could not read its path."""
    folder = folder.absolute()
    if folder.exists() or folder.is_symlink():
        raise Refused(f"{folder} is there already, and was not changed: name a new directory")
    if _PLAIN_PATH.fullmatch(str(folder)) is None:
        raise Refused(f"{folder}: Spark reads only letters, digits and ./@+-_ in this path")
    for name in (project.topic, project.target, project.name):
        check_name(name, "name")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # A folder of its own that gets its name in the end: a disk that is full leaves nothing behind.
    unseen = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for path, text in _files(folder, project).items():
            file = unseen / path
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        unseen.chmod(0o755)
        unseen.rename(folder)
    except OSError:
        shutil.rmtree(unseen, ignore_errors=True)
        raise


def _files(folder: Path, project: Project) -> dict[str, str]:
    """Returns the text of each file, by its path in the project."""
    said = {
        "name": project.name,
        "folder": str(folder),
        "programs": shlex.quote(str(Path(sys.executable).parent)),
    }
    code = {
        "broker": json.dumps(dict(project.broker), ensure_ascii=False),
        "topic": json.dumps(project.topic),
        "target": json.dumps(project.target),
        "name": json.dumps(project.name),
        "table": project.table,
    }
    # Those for a session here, but for the log settings, which are in the project.
    plain = defaults("local[*]", os.environ)
    del plain["spark.driver.defaultJavaOptions"]
    settings = "".join(f"{name} {value}\n" for name, value in plain.items())
    return {
        "spark-pipeline.yml": _SPEC.substitute(said),
        "env.sh": _ENVIRONMENT.substitute(said),
        "conf/spark-defaults.conf": _SETTINGS.substitute(said) + settings,
        "conf/log4j2.properties": LOG_SETTINGS,
        f"transformations/{project.table}.py": _TABLES.substitute(code),
        ".gitignore": _IGNORED,
    }
