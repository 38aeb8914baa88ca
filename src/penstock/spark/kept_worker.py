"""What a Python worker of Spark has loaded is left alone by the garbage collector.

Spark keeps a worker for the next task and collects garbage after each one. Most of what is looked at then are the
modules of Spark, Arrow and ours, which stay until the process ends: 20 ms for every task, on a core that the next
stage could have.
"""

import gc
import os
from functools import cache

# Spark sets it for workers that it keeps, and for no other process.
_KEPT = "SPARK_REUSE_WORKER"


@cache
def leave_loaded_alone() -> None:
    """To be called when all modules are loaded; does something once, and only in a worker that Spark keeps.

    What goes when nobody refers to it goes as before. Only rings of objects that are there now would stay.
    """
    if _KEPT in os.environ:
        gc.freeze()
