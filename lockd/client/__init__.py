"""How Python apps lock, over the agent's socket: sync/ for threads, aio/ for asyncio, and what both share.
Apps import it from `lockd` and `lockd.aio`."""
