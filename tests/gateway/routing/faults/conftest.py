"""Fixtures of the fault tests: one gateway with many rules, each for the stream of its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.faults import with_faults
from support.process import GatewayProcess, running_gateway

RULES: list[dict[str, Any]] = [
    {"name": "lost-append", "action": "drop", "direction": "in", "operations": ["append"], "after": 1, "times": 1},
    {"name": "thirds", "action": "drop", "direction": "in", "operations": ["append"], "every": 3},
    {"name": "lost-ack", "action": "drop", "operations": ["append"], "after": 1, "times": 1},
    {"name": "lost-batch", "action": "drop", "operations": ["read"], "times": 1},
    {"name": "twice-in", "action": "duplicate", "direction": "in", "operations": ["append"], "times": 1},
    {"name": "cut-out", "action": "cut", "operations": ["read"], "times": 1, "cut_after_bytes": 7},
    {"name": "cut-ack", "action": "cut", "operations": ["append"], "times": 1, "cut_after_bytes": 0},
    {"name": "cut-in", "action": "cut", "direction": "in", "operations": ["append"], "times": 1},
    {"name": "dropped-read", "action": "drop", "direction": "in", "operations": ["read"], "times": 1},
    {"name": "refused", "action": "error", "operations": ["append"], "code": "rate_limited", "after": 1, "times": 1},
    {"name": "applied", "action": "error", "direction": "out", "operations": ["append"], "times": 1},
    {"name": "unread", "action": "error", "operations": ["read"], "code": "storage", "message": "no", "every": 2},
    {"name": "ends", "action": "terminal", "records": 3},
    {"name": "ends-read", "action": "terminal", "records": 3, "operations": ["read"]},
    {"name": "cuts", "action": "cut", "operations": ["read"], "cut_after_bytes": 7},
    {"name": "no-answers", "action": "drop", "operations": ["append"]},
    {"name": "no-appends", "action": "drop", "direction": "in", "operations": ["append"]},
    {"name": "slow", "action": "throttle", "operations": ["read"], "bytes_per_second": 20_000},
    {"name": "late", "action": "delay", "delay_ms": 150, "operations": ["append"]},
    {"name": "late-out", "action": "delay", "direction": "out", "delay_ms": 150},
    {"name": "no-control", "action": "error", "operations": ["control"], "code": "hot_server"},
]


@pytest.fixture(scope="module")
def faulty() -> Iterator[GatewayProcess]:
    """A gateway whose clients are served badly: a stream whose name begins with a rule's name, and a dot, has it."""
    rules = [{"stream": f"{rule['name']}.", "match": "prefix", **rule} for rule in RULES]
    with running_gateway(with_faults(*rules)) as process:
        yield process
