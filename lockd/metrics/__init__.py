"""What the agent counts, and how Prometheus reads it."""
