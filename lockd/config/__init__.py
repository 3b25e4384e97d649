"""The agent's configuration: one YAML file, read once into a frozen value; every mistake in it is reported at
once."""
