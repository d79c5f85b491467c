"""The mixed demonstration of `clearway up --demo`: real training, a gang, an elastic job, tasks, and preemption."""

from clearway.bootstrap.demo.story import Demonstration

__all__ = ["Demonstration"]
