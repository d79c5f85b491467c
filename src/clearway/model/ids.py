"""Identities. A job is numbered by whoever accepted it; nodes, queues and tenants are named by people."""

from typing import NewType

JobId = NewType("JobId", int)
"""Positive, unique for ever, given once at acceptance and never reused."""

NodeName = NewType("NodeName", str)
QueueName = NewType("QueueName", str)
TenantName = NewType("TenantName", str)

DEFAULT_QUEUE = QueueName("production")
ROOT_TENANT = TenantName("root")
