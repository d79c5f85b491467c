"""Clearway: dynamic allocation of GPU clusters, decided by one pure engine and proved in a twin."""

__version__ = "0.1.0"
