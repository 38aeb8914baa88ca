"""Pipelines: topics into a lake, files into a topic, SQL over both; described in YAML, run by Spark.

Spark runs the tasks, on this machine or on a cluster. The sink decides what is done: a lake counts only what its
manifests name. The guide: docs/pipelines.md; why it is exactly once: docs/decisions/.
"""
