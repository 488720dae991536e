"""A whole back of records over a server that does not number them: S3P, segment stores."""

from penstock.backs.indexed.back import IndexedBack, open_indexed
from penstock.backs.indexed.settings import IndexedSettings

__all__ = ["IndexedBack", "IndexedSettings", "open_indexed"]
