"""Runs jobs as processes of this machine."""
