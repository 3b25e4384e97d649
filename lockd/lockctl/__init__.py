"""The command `lockctl`: locks for shell scripts, and what operators see and do, through the host's agent."""
