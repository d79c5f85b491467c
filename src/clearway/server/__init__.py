"""REST and server-sent events over the control plane that `ports.control` describes."""
