"""Questions put to several masters at once, and what their answers add up to: a module for each kind."""
