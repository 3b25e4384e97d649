"""A connection of the event loop, and what hears it: of the form of asyncio's, and of none of its classes.
uvloop's transports don't derive from those, and what is compiled can't."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, cast


class Transport(Protocol):
    """What is used of an asyncio.Transport."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int: ...

    def get_extra_info(self, name: str) -> Any: ...


class Hearer(Protocol):
    """All of an asyncio.Protocol: the event loop asks for each of them."""

    def connection_made(self, transport: Transport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...


def for_loop(hearer: Callable[[], Hearer]) -> Callable[[], asyncio.Protocol]:
    """As the event loop's signatures want it."""
    return cast("Callable[[], asyncio.Protocol]", hearer)
