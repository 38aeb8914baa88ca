"""Observability: names of metrics, what they mean, and their text form.

Callers pass figures as samples. `METRICS` is the table that dashboards, alerts and docs are checked against.
"""
