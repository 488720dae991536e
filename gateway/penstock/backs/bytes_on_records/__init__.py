"""Byte operations over any back of records: what the segment protocol's clients need of a server that has none."""

from penstock.backs.bytes_on_records.administration import SourceBacks
from penstock.backs.bytes_on_records.back import BytesOnRecords, open_bytes_on_records
from penstock.backs.bytes_on_records.settings import BytesSettings

__all__ = ["BytesOnRecords", "BytesSettings", "SourceBacks", "open_bytes_on_records"]
