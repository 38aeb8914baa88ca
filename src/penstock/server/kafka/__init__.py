"""Kafka's protocol on the binary port: its requests become commands, the replies its responses.

`request_tables` and `response_tables` say which fields each version of a message has, `wire` reads and writes them,
`port` calls the handler of each api key. docs/kafka.md says what works and what differs from Kafka.
"""
