"""Pipelines: topics into a lake, files into a topic, SQL over both; described in YAML, run by Spark.

Spark is who runs the tasks, here or on a cluster. What was done is decided elsewhere, in one place for each sink: a
lake believes only its manifests. The guide: docs/pipelines.md; why it is exactly once: docs/decisions/.
"""
