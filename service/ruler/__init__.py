"""The ruler: what a raw log holds, what is computed from it, and whether it may be used. Pure: no I/O, no clock."""

RULER_VERSION = 1
"""Part of every cell: numbers of different ruler versions are never compared. ruler.lock says when it must grow."""

METRICS_SCHEMA = 1
"""Grows when a metric changes its meaning; names alone don't tell."""
