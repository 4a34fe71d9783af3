"""A table of words and habits for each language."""
