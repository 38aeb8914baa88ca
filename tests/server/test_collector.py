"""What the collector of garbage may leave alone while data is open, it looks at again afterwards."""

import subprocess
import sys

from .test_opening import asked, free_port

TELLS_WHAT_IS_KEPT = """
import gc
from penstock.cli import main
from penstock.server.serving import Serving

serve_clients = Serving.serve_clients

async def serve_and_tell(serving, *arguments):
    await serve_clients(serving, *arguments)
    print("kept", gc.get_freeze_count(), flush=True)

Serving.serve_clients = serve_and_tell
main()
"""


def test_nothing_of_data_that_was_closed_is_kept_from_the_collector(tmp_path):
    port = free_port()
    words = ["serve", "--port", str(port), "--binary-port", "0", "--data-dir", str(tmp_path / "d")]
    with subprocess.Popen(
        [sys.executable, "-c", TELLS_WHAT_IS_KEPT, *words], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert asked(port, "/livez")[0] == 200
        finally:
            process.terminate()
        said, _ = process.communicate(timeout=60)
    assert said.splitlines()[-1] == "kept 0"
