"""A command and a gateway that misbehaves, whose recording shows how the command's clients took it.

The gateway keeps to its protocols: it answers in any pieces, refuses for a while, loses connections, and ends sessions.
So a clause that a client breaks is the client's own fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.app.config import BasinTable, FaultTable, RecorderTable, StoreTable
from penstock.core.config_fields import DEFAULT_BASIN
from penstock.core.errors import out_of_groups
from penstock.tools.mock.gateway import open_gateway
from penstock.tools.mock.run import run_command

__all__ = ["FAULTS", "chosen_faults", "run_before_faults"]

FAULTS: Final[Sequence[Mapping[str, Any]]] = (
    {"name": "in-pieces", "action": "throttle", "bytes_per_second": 100_000, "piece_bytes": 1},
    {
        "name": "not-now",
        "action": "error",
        "operations": ["append"],
        "code": "hot_server",
        "every": 4,
        "times": 2,
    },
    {
        "name": "lost-acks",
        "action": "cut",
        "operations": ["append"],
        "after": 1,
        "every": 2,
        "cut_places": 8,
    },
    {"name": "lost-reads", "action": "cut", "operations": ["read"], "every": 2, "cut_places": 32},
    {
        "name": "restless",
        "action": "terminal",
        "operations": ["read"],
        "records": 3,
        "code": "server_draining",
        "times": 2,
    },
)
"""The faults, as tables of a configuration. Cuts come before each of the places of an answer, one after the other."""
_STORE: Final = StoreTable(
    directory="", basins=(BasinTable(name=DEFAULT_BASIN, create_stream_on_append=True, create_stream_on_read=True),)
)


def chosen_faults(names: Sequence[str]) -> list[FaultTable]:
    """Return the faults with these names, all for none. Raises ValueError for a name that no fault has."""
    known = {table["name"]: table for table in FAULTS}
    for name in names:
        if name not in known:
            raise ValueError(f"{name!r} is no fault: choose from {', '.join(known)}")
    return [msgspec.convert(known[name], FaultTable) for name in (names or known)]


async def run_before_faults(
    command: Sequence[str], faults: Sequence[FaultTable], recordings: Path
) -> tuple[int, dict[str, int]]:
    """Run a command whose clients find a gateway with faults in their environment, and record its connections.

    Return the command's exit code, 128 + n for signal n, and how often each fault was injected. The recording is
    complete then. Raises CannotStart, CommandNotRun.
    """
    recorder = RecorderTable(directory=str(recordings))
    with out_of_groups():
        async with open_gateway(_STORE, faults=tuple(faults), recorder=recorder) as (running, addresses):
            code = await run_command(command, addresses)
            fired = {rule.fault.name: rule.fired for rule in running.faults.rules}
    return code, fired
