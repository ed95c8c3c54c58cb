"""More data than one process holds: clouds whose points are spread over workers."""
