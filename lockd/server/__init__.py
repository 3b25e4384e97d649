"""Where apps come in: RESP over a Unix socket."""
