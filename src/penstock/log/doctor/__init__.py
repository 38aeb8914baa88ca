"""Tools for the files of a log, damaged or not: check, measure, plan a repair, repair.

Serves `penstock log verify`, `stats`, `dump` and `repair`. The running log does not import it.
"""
