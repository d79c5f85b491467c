"""The twin: the kernel under a clock of its own, over a simulated backend, fed with recorded or made-up workloads."""
