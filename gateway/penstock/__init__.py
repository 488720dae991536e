"""Penstock: a multi-protocol gateway for append-only streams of records.

This package has the sockets, fronts, backs, the embedded store, configuration and the command line. Encoding and
decoding of the protocols is in `penstock_codecs`.
"""

from typing import Final

__all__ = ["DISTRIBUTION"]

DISTRIBUTION: Final = "penstock-gateway"
"""Name of the distribution for pip and `importlib.metadata`; `penstock` on PyPI is another project."""
