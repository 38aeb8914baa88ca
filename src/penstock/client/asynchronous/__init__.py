"""The client for asyncio. `tools/unasync.py` generates the synchronous one from it, but for what waits."""
