"""What a Python app locks with, over the agent's socket: one client for threads (sync.py), one for asyncio
(aio.py). Apps import them from `lockd` and `lockd.aio`."""
