"""Observability: names of metrics, what they mean, and their text form.

Knows no broker: whoever has figures hands them over as samples. `METRICS` is the table that dashboards, alerts and docs
are checked against.
"""
