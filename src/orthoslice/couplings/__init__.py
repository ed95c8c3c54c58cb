"""Step 4, couple: projected clouds by order."""
