"""The client for threads. `tools/unasync.py` generates it from `asynchronous`, but for what waits."""
