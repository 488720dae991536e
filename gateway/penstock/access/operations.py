"""Which operations of S2's access tokens an operation on a back is."""

from __future__ import annotations

from typing import Any, Final

from penstock_codecs.operations import (
    Append,
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    EnsureBasin,
    EnsureStream,
    GetBasinConfig,
    GetStreamConfig,
    ReconfigureBasin,
    ReconfigureStream,
    Trim,
)
from penstock_codecs.s2.access_tokens import Op

__all__ = ["OPS", "ops_of_append"]

OPS: Final[dict[type, tuple[Op, ...]]] = {
    Append: (Op.APPEND,),
    CheckTail: (Op.CHECK_TAIL,),
    CreateBasin: (Op.CREATE_BASIN,),
    EnsureBasin: (Op.CREATE_BASIN, Op.RECONFIGURE_BASIN),
    GetBasinConfig: (Op.GET_BASIN_CONFIG,),
    ReconfigureBasin: (Op.RECONFIGURE_BASIN,),
    DeleteBasin: (Op.DELETE_BASIN,),
    CreateStream: (Op.CREATE_STREAM,),
    EnsureStream: (Op.CREATE_STREAM, Op.RECONFIGURE_STREAM),
    GetStreamConfig: (Op.GET_STREAM_CONFIG,),
    ReconfigureStream: (Op.RECONFIGURE_STREAM,),
    DeleteStream: (Op.DELETE_STREAM,),
    Trim: (Op.TRIM,),
}
"""By the class of the operation. Who may append may also create a stream so, where the basin has streams created on
append: its owner has said so."""

_COMMANDS: Final = {b"trim": Op.TRIM, b"fence": Op.FENCE}


def ops_of_append(append: Any) -> tuple[Op, ...]:
    """What a batch takes: command records are operations of their own (S2 fact sheet, 5.3)."""
    headers = getattr(append, "headers", None)
    if not headers:
        return (Op.APPEND,)
    commands = {one[0].value for one in headers.values() if len(one) == 1 and not one[0].name}
    return (Op.APPEND, *(op for command, op in _COMMANDS.items() if command in commands))
