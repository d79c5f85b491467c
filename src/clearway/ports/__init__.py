"""What the shell must offer to the kernel's drivers, as protocols."""
