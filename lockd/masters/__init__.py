"""How the rules in core reach Redis: one ordered link per master, and the fan-out over them."""
