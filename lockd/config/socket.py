"""Where apps reach the agent of their host. Separate from the model, so that clients and lockctl start
without it."""

DEFAULT_SOCKET = "/run/lockd/lockd.sock"

SOCKET_PATH_BYTES = 107
"""The kernel's sun_path holds 108, with its final NUL."""
