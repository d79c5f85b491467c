"""Translators to what really exists: processes of this machine, databases, cluster managers."""
