"""The one door: `Kernel.handle(event) -> commands`. Synchronous, single-threaded, run to completion."""

from clearway.kernel.kernel import Kernel

__all__ = ["Kernel"]
