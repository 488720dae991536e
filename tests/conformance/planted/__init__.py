"""Planted faults: for each case of each suite one at least that it finds; a module for each protocol."""

from __future__ import annotations

from conformance.planted.controller import CONTROLLER
from conformance.planted.durable import DURABLE
from conformance.planted.faults import Faults
from conformance.planted.kafka import KAFKA
from conformance.planted.s2 import S2
from conformance.planted.s3p import S3P
from conformance.planted.segment import DRAFT, SEGMENT

__all__ = ["FAULTS"]

FAULTS: dict[str, Faults] = {
    "durable": DURABLE,
    "kafka": KAFKA,
    "pravega": CONTROLLER,
    "s2": S2,
    "s3p": S3P,
    "segment": SEGMENT,
    "segment+draft": DRAFT,
}
"""By the scheme of a server's URL."""
