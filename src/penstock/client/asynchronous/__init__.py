"""The client for asyncio. Written by hand; `tools/recolour.py` makes the synchronous one from it, all but `io`."""
