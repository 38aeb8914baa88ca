"""The end of a process that cannot be trusted any more."""

import subprocess
import sys

from penstock.runtime.fatal import EXIT_CODE

STOP = "from penstock.runtime.fatal import exit_process\nfrom penstock.errors import SyncFailed\n"


def test_fatal_error_ends_the_process_with_one_line():
    program = STOP + "exit_process(SyncFailed('log/1', 'Input/output error'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == EXIT_CODE
    assert done.stderr == "penstock: fsync of log/1 failed: Input/output error; the process stops\n"


def test_bug_ends_the_process_with_a_traceback():
    program = STOP + "try: 1 / 0\nexcept ZeroDivisionError as error: exit_process(error)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == EXIT_CODE
    assert "ZeroDivisionError: division by zero" in done.stderr


def test_no_reader_of_the_last_words_is_waited_for():
    program = STOP + (
        "import os, sys\n"
        "os.set_blocking(2, False)\n"
        "try:\n"
        "    while os.write(2, bytes(65536)): pass\n"
        "except BlockingIOError: os.set_blocking(2, True)\n"
        "sys.stdout.write('full'); sys.stdout.flush()\n"
        "exit_process(SyncFailed('log/1', 'Input/output error'))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        assert process.stdout.read(4) == b"full"
        assert process.wait(timeout=120) == EXIT_CODE
