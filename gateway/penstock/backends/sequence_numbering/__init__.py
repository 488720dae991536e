"""A complete back of records over a server that does not number them."""

from penstock.backends.sequence_numbering.back import IndexedBack, open_indexed
from penstock.backends.sequence_numbering.settings import IndexedSettings

__all__ = ["IndexedBack", "IndexedSettings", "open_indexed"]
