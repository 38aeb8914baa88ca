"""Protobuf: descriptors and text are the same schemas, and Confluent's rules of changes hold."""

import time

import pytest
from google.protobuf import timestamp_pb2

from penstock.errors import InvalidSchema
from penstock.schemas.protobuf import ProtobufSchema

HEAD = 'syntax = "proto3"; package shop; '
ORDER = (
    HEAD
    + "message Order { int32 id = 1; string name = 2; repeated Line lines = 3; } message Line { int64 n = 1; }"
)


def order(fields: str, more: str = "") -> ProtobufSchema:
    return ProtobufSchema(f"{HEAD} message Order {{ {fields} }} {more}")


@pytest.mark.parametrize(
    ("old", "new", "is_compatible"),
    [
        ("int32 a = 1;", "int32 a = 1; string b = 2;", True),
        ("int32 a = 1; string b = 2;", "int32 a = 1;", True),
        ("int32 a = 1;", "int32 other = 1;", True),
        ("int32 a = 1;", "int64 a = 1;", True),
        ("int32 a = 1;", "bool a = 1;", True),
        ("string a = 1;", "bytes a = 1;", True),
        ("fixed32 a = 1;", "sfixed32 a = 1;", True),
        ("int32 a = 1;", "sint32 a = 1;", False),
        ("int32 a = 1;", "string a = 1;", False),
        ("float a = 1;", "double a = 1;", False),
        ("int32 a = 1;", "repeated int32 a = 1;", False),
        ("string a = 1;", "repeated string a = 1;", True),
        ("oneof o { int32 a = 1; int32 b = 2; }", "oneof o { int32 a = 1; }", False),
        ("int32 a = 1;", "oneof o { int32 a = 1; int32 b = 2; }", True),
        ("int32 a = 1; int32 b = 2;", "oneof o { int32 a = 1; int32 b = 2; }", False),
        ("optional int32 a = 1;", "int32 a = 1;", True),
        # Two oneofs become one, or a field goes from one to the other: both may have been set.
        (
            "oneof o { int32 a = 1; } oneof p { int32 b = 2; }",
            "oneof o { int32 a = 1; int32 b = 2; }",
            False,
        ),
        (
            "oneof o { int32 a = 1; int32 b = 2; } oneof p { int32 c = 3; int32 d = 4; }",
            "oneof o { int32 a = 1; } oneof p { int32 b = 2; int32 c = 3; int32 d = 4; }",
            False,
        ),
        ("int32 c = 3; oneof o { int32 a = 1; }", "oneof o { int32 a = 1; int32 c = 3; }", False),
        # A oneof under another name, with all of its fields or with one less; and a field that leaves one.
        ("oneof o { int32 a = 1; int32 b = 2; }", "oneof p { int32 a = 1; int32 b = 2; }", True),
        ("oneof o { int32 a = 1; int32 b = 2; }", "oneof p { int32 a = 1; }", False),
        ("oneof o { int32 a = 1; int32 b = 2; }", "oneof o { int32 a = 1; } int32 b = 2;", False),
        ("oneof o { int32 a = 1; int32 b = 2; }", "int32 a = 1; int32 b = 2;", True),
        ("oneof o { int32 a = 1; int32 b = 2; }", "int32 a = 1;", True),
        ("message I {} I a = 1;", "message I {} message J {} J a = 1;", False),
        ("message I { int32 b = 1; } I a = 1;", "message I { string b = 1; } I a = 1;", False),
        ("message I {}", "", False),
        ("map<string, int32> a = 1;", "map<string, int64> a = 1;", True),
        ("map<string, int32> a = 1;", "map<string, string> a = 1;", False),
    ],
)
def test_changes_of_a_message(old: str, new: str, is_compatible: bool) -> None:
    assert (not order(new).faults_reading(order(old))) is is_compatible


@pytest.mark.parametrize(
    ("old", "new", "is_compatible"),
    [
        ("int32 n = 1;", "int64 n = 1;", True),
        ("int32 n = 1;", "string n = 1;", False),
        ("oneof o { int32 n = 1; int32 m = 2; }", "oneof o { int32 n = 1; }", False),
        ("message In { int32 n = 1; } In i = 1;", "message In { bytes n = 1; } In i = 1;", False),
        ("Line next = 1; int32 n = 2;", "Line next = 1; sint32 n = 2;", False),
    ],
)
def test_changes_of_an_imported_message(old: str, new: str, is_compatible: bool) -> None:
    """Whether the file imports it, or a file that the file imports."""

    def made(fields: str) -> ProtobufSchema:
        line = f"{HEAD} message Line {{ {fields} }} message Other {{ int32 n = 1; }}"
        page = f'{HEAD} import "line.proto"; message Page {{ repeated Line lines = 1; }}'
        book = f'{HEAD} import "page.proto"; message Book {{ map<string, Page> pages = 1; }}'
        return ProtobufSchema(book, [("page.proto", page), ("line.proto", line)])

    assert (not made(new).faults_reading(made(old))) is is_compatible


def test_required_fields_come_and_go_never() -> None:
    def made(fields: str) -> ProtobufSchema:
        return ProtobufSchema(f"message M {{ optional int32 a = 1; {fields} }}")

    assert made("required int32 b = 2;").faults_reading(made(""))
    assert made("").faults_reading(made("required int32 b = 2;"))


def test_another_package_is_another_schema() -> None:
    assert ProtobufSchema(ORDER.replace("shop", "store")).faults_reading(ProtobufSchema(ORDER))


def test_text_and_descriptor_are_one_schema() -> None:
    text = ProtobufSchema(ORDER)
    descriptor = ProtobufSchema(text.serialized)
    assert text.normalized == descriptor.normalized
    assert descriptor.serialized == text.serialized
    assert text.faults_reading(descriptor) == descriptor.faults_reading(text) == []


def test_imports_lead_to_references_and_to_what_comes_with_protobuf() -> None:
    line = 'syntax = "proto3"; package shop; message Line { int32 n = 1; }'
    main = (
        f'{HEAD} import "a/line.proto"; import "google/protobuf/timestamp.proto"; '
        "message Order { Line line = 1; google.protobuf.Timestamp at = 2; }"
    )
    found = ProtobufSchema(main, [("a/line.proto", line)])
    (order,) = found.file.message_type
    assert [one.type_name for one in order.field] == [
        ".shop.Line",
        f".{timestamp_pb2.Timestamp.DESCRIPTOR.full_name}",
    ]
    with pytest.raises(InvalidSchema, match="it imports a/line"):
        ProtobufSchema(main)
    # Whatever the order in which they are named.
    inner = 'syntax = "proto3"; import "a/line.proto"; message Page { shop.Line line = 1; }'
    outer = f'{HEAD} import "a/line.proto"; import "page.proto"; message Book {{ Page page = 1; }}'
    ProtobufSchema(outer, [("page.proto", inner), ("a/line.proto", line)])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAA",
        "message M {",
        "message M { int32 a = ; }",
        "message M { optional Nothing a = 1; }",
        "message M { optional int32 a = 1; optional int32 b = 1; }",
        "message M {} message M {}",
        'import "/etc/passwd";',
        'edition = "2023"; message M {}',
        "message A {" * 1000 + "}" * 1000,
        "x" * 65_537,
        "message M {}" + " " * 70_000,
        "QQ" * 200_000,
    ],
)
def test_what_is_no_schema_is_refused_soon(text: str) -> None:
    started = time.process_time()
    with pytest.raises(InvalidSchema):
        ProtobufSchema(text)
    assert time.process_time() - started < 3
