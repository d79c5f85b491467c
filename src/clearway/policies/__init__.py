"""Plug-ins of the engine: orders, and policies by name or from plain data."""
