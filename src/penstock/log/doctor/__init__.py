"""What looks at the files of a log from outside, damaged or not: check, measure, plan a repair, repair.

Serves `penstock log verify`, `stats`, `dump` and `repair`. The running log does not import it.
"""
