"""Scripts that run in seconds and show a picture."""
