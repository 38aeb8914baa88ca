"""Server: the doors through which other processes reach a broker.

A door parses, authenticates, asks `broker.authorise`, and translates replies and errors; it decides nothing about
messages. `settings` says what can be configured, `http` is the first door.
"""
