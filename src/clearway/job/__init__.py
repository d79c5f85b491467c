"""For programs that run under Clearway: say how far the work is, what is saved, and learn when to leave."""
