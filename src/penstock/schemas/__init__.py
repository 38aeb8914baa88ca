"""Schemas: the registry, and what it takes to read schemas and to compare them.

Knows languages of schemas, subjects and versions. Does not know topics, messages or clocks. `registry` decides and
applies; `avro`, `json_schema` and `protobuf` read and compare.
"""

from .records import SchemaRecord as SchemaRecord
from .records import SchemaStored as SchemaStored
from .registry import Registry as Registry
from .registry import Version as Version
