"""The agent's HTTP port: /metrics, /healthz, /readyz and a page for people. It runs in separate threads."""
