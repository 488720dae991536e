"""Byte operations over any back of records: let segment clients use a server that has no byte operations."""

from penstock.backends.byte_view.administration import SourceBacks
from penstock.backends.byte_view.back import BytesOnRecords, open_bytes_on_records
from penstock.backends.byte_view.settings import BytesSettings

__all__ = ["BytesOnRecords", "BytesSettings", "SourceBacks", "open_bytes_on_records"]
