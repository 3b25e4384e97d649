"""For asyncio programs."""
