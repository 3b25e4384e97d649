"""For programs with threads."""
