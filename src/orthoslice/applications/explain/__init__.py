"""Where two clouds differ."""
