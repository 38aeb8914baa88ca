"""Embedded: a durable queue, or a whole broker, inside a Python process. No server, no event loop.

`open_queue` gives a FIFO queue on a directory; `Broker` gives topics and groups. Both drive the same core through
threads; neither decides anything about delivery itself.
"""
