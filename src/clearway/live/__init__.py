"""The driver of real clusters: turns requests and reports into events, keeps the journal, and carries out commands."""
