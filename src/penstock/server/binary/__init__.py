"""The binary port: Kafka's framing, with our own api keys beside Kafka's (docs/protocol.md)."""
