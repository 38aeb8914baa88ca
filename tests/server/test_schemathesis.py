"""What the OpenAPI document promises, against whatever a generator makes of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .rigs import served

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


@pytest.mark.tier("test")
def test_no_5xx_and_no_answer_that_is_not_documented(tmp_path, effort):
    with served(tmp_path / "data") as broker:
        broker.call("POST", "/topics?name=orders")
        broker.call("POST", "/produce?topic=orders&value=1")
        command = [
            str(Path(sys.executable).with_name("schemathesis")),
            "run",
            f"{broker.address}/openapi.json",
            # A stream never ends.
            "--exclude-path",
            "/consume",
            "--phases",
            "coverage,fuzzing",
            "--max-examples",
            str(effort(check=5, test=8, torture=1000)),
            "--seed",
            "1",
            "--request-timeout",
            "30",
            *(word for check in CHECKS for word in ("--checks", check)),
        ]
        hooks = {"SCHEMATHESIS_HOOKS": "binary_bodies", "PYTHONPATH": str(Path(__file__).parent)}
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=os.environ | hooks
        )
        assert done.returncode == 0, done.stdout[-8000:]
        assert broker.call("GET", "/health").status == 200
