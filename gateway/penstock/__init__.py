"""Penstock: a multi-protocol gateway for append-only streams of records.

This package has the record model, the sockets, the embedded store, captures, configuration and the command line. It
imports no wire format: each is a package of its own (`penstock_s2` and others), found by its plug-ins.
"""

from typing import Final

__all__ = ["DISTRIBUTION"]

DISTRIBUTION: Final = "penstock-gateway"
"""Name of the distribution for pip and `importlib.metadata`; `penstock` on PyPI is another project."""
