"""Where apps and operators reach the agent of their host. Separate from the model, so that clients and
lockctl start without it."""

DEFAULT_SOCKET = "/run/lockd/lockd.sock"
_OPERATORS = ".operators"

SOCKET_PATH_BYTES = 107 - len(_OPERATORS)
"""The kernel's sun_path holds 108, with its final NUL: enough for the operators' socket, too."""


def operators_socket(app_socket: str) -> str:
    """The one beside it."""
    return app_socket + _OPERATORS
