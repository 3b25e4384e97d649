"""RESP as the agent speaks it to apps: requests are parsed, replies are encoded. No I/O."""
