"""Server: the protocols through which other processes reach a broker.

A protocol parses, authenticates, and translates commands, replies and errors; it decides nothing about messages.
`settings` says what can be configured, `serving` is the life of the process. `http` has a port of its own, `binary` and
`kafka` share one.
"""
