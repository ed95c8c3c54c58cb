"""Step 1, check: what the user gave, checked once at the boundary."""
