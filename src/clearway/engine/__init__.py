"""Decisions: the state box and its tables, the decision cycle, the checker, and explanations. Pure."""
