"""A nursery whose tasks live as long as a block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

__all__ = ["background"]


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose tasks are cancelled when the block ends.

    An exception of the block is raised as it is; a bare nursery would wrap it in an exception group.
    """
    error: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except trio.Cancelled:
            raise
        except BaseException as raised:
            error = raised
        nursery.cancel_scope.cancel()
    if error is not None:
        raise error
