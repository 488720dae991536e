"""Byte operations over any back of records, for clients of streams as bytes on a server that has no such operations."""

from penstock.backends.byte_view.administration import SourceBacks
from penstock.backends.byte_view.back import BytesOnRecords, open_bytes_on_records
from penstock.backends.byte_view.settings import BytesSettings

__all__ = ["BytesOnRecords", "BytesSettings", "SourceBacks", "open_bytes_on_records"]
