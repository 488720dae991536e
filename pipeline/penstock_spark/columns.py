"""Check requested columns: a selection of a table's, in any order, with names in any case, as Spark has it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

__all__ = ["WrongSchema", "check_columns"]


class WrongSchema(ValueError):
    """A schema has columns that the format lacks; the message names all of them. `where`: the format."""

    def __init__(self, where: str, faults: Sequence[str]) -> None:
        super().__init__("\n  ".join((f"{where}: {len(faults)} columns are wrong", *faults)))
        self.where = where
        self.faults = tuple(faults)

    def __reduce__(self) -> tuple[type[WrongSchema], tuple[str, tuple[str, ...]]]:
        return WrongSchema, (self.where, self.faults)


def check_columns(where: str, table: StructType, requested: StructType) -> None:
    """Raise WrongSchema unless `requested` is a selection of the table's columns, by name and type. Nullability does
    not matter."""
    ours = {field.name: field.dataType for field in table}
    faults, seen = [], set()
    for field in requested:
        name = field.name.lower()
        if name not in ours:
            faults.append(f"{field.name}: no such column; expected one of {', '.join(ours)}")
        elif name in seen:
            faults.append(f"{field.name}: twice")
        elif not _same(field.dataType, ours[name]):
            faults.append(f"{field.name}: is {ours[name].simpleString()}, not {field.dataType.simpleString()}")
        seen.add(name)
    if not seen:
        faults.append(f"no columns are selected; expected some of {', '.join(ours)}")
    if faults:
        raise WrongSchema(where, faults)


def _same(requested: DataType, ours: DataType) -> bool:
    if isinstance(requested, ArrayType) and isinstance(ours, ArrayType):
        return _same(requested.elementType, ours.elementType)
    if isinstance(requested, MapType) and isinstance(ours, MapType):
        return _same(requested.keyType, ours.keyType) and _same(requested.valueType, ours.valueType)
    if isinstance(requested, StructType) and isinstance(ours, StructType):
        return requested.names == ours.names and all(
            _same(field.dataType, own_field.dataType) for field, own_field in zip(requested, ours, strict=True)
        )
    return type(requested) is type(ours)
