"""The client for asyncio. Written by hand; `tools/unasync.py` makes the synchronous one from it, all but `io`."""
