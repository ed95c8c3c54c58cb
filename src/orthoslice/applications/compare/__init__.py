"""All that can be said of two tables in one call, in words and in pictures."""
