"""Step 3, project: points with weights, as given and made ready for scoring; they project themselves."""
