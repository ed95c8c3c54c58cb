"""A comparison as a page that opens anywhere: words, pictures, and how to repeat it."""
