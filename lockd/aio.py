"""`from lockd.aio import Client`: locks for asyncio programs, through the agent of this host.

An example:

    async with Client() as client:
        async with client.lock("invoice:42", ttl=10, wait=5) as lease:
            await ledger.write(..., fence=lease.fence)
"""

from lockd.client.aio.leading import Leadership
from lockd.client.aio.lease import Lease
from lockd.client.aio.locks import Client, LockBlock, LockOptions

__all__ = ["Client", "Leadership", "Lease", "LockBlock", "LockOptions"]
