"""The agent's configuration: one YAML file, read once, every mistake told at once, into a frozen value."""
