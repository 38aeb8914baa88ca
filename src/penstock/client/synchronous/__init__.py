"""The client for plain programs and threads. Made by `tools/unasync.py`, all but `io`, which is written by hand."""
