"""Errors of the sink, for people."""

from __future__ import annotations

__all__ = ["RowsDiffer", "SinkFailed"]


class SinkFailed(Exception):
    """The rows cannot be written, and trying again does not help; the message says what is wrong and where."""


class RowsDiffer(SinkFailed):
    """Another attempt at the same batch stored other rows, or more: the stream cannot be completed."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. A repeated batch must have the same rows in the same order and partitions: sort them (with "
            "penstock_spark.sink.by_key), and keep the number of partitions. Two jobs must not share a sink and batch"
        )

    def __reduce__(self) -> tuple[type[SinkFailed], tuple[str]]:
        return SinkFailed, (str(self),)
