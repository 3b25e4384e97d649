"""Questions that are put to several masters at once, and how their answers are counted: one module for each
kind."""
