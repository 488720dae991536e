"""Log lines that peers can cause at will are limited, and those that are left out are counted."""

from __future__ import annotations

import pytest
import structlog

from penstock.observe.throttle import BURST, MOST_KEYS, Throttle

FULL = int(BURST)


class Lines:
    """Lines that pass the throttle, on a clock that stands still."""

    def __init__(self) -> None:
        self.now = 0.0
        self.written: list[structlog.typing.EventDict] = []
        self._throttle = Throttle(lambda: self.now)

    def say(self, times: int = 1, event: str = "protocol_error", peer: str = "10.0.0.1:5", **more: str) -> int:
        """Log the event `times` times and return how many of the lines were written."""
        before = len(self.written)
        for _ in range(times):
            try:
                self.written.append(self._throttle(None, "info", {"event": event, "peer": peer, **more}))
            except structlog.DropEvent:
                continue
        return len(self.written) - before


@pytest.fixture
def lines() -> Lines:
    return Lines()


def test_the_next_line_says_how_many_were_left_out(lines: Lines) -> None:
    assert lines.say(FULL + 30) == FULL
    assert not any("suppressed" in line for line in lines.written)
    lines.now = 1.0
    assert lines.say(5) == 1
    assert lines.written[-1]["suppressed"] == 30
    lines.now = 1000.0
    assert lines.say() == 1
    assert lines.written[-1]["suppressed"] == 4
    assert lines.say() == 1
    assert "suppressed" not in lines.written[-1]


def test_each_client_and_each_kind_has_its_own(lines: Lines) -> None:
    lines.say(1000)
    assert lines.say(peer="10.0.0.1:6") == 0, "another connection of the same client"
    assert lines.say(FULL, peer="10.0.0.2:5") == FULL
    assert lines.say(FULL, "connection_lost") == FULL
    assert lines.say(1000, "reloaded") == 1000, "no other cause"


def test_lines_about_servers_count_for_their_back(lines: Lines) -> None:
    far, near = "back far at 10.0.0.9:1: connection lost", "back near at 10.0.0.9:2: connection lost"
    for number in range(100):
        lines.say(1, "back_read_interrupted", f"10.0.0.{number}:1", reason=far)
    assert len(lines.written) == FULL
    assert lines.say(1, "back_read_interrupted", reason=near) == 1


def test_clients_without_number_take_no_memory_without_bound(lines: Lines) -> None:
    lines.say(FULL + 7, peer="first:1")
    for number in range(MOST_KEYS + 10):
        lines.say(1, peer=f"{number}:1")
    assert len(lines._throttle._buckets) == MOST_KEYS
    assert sum(int(line.get("suppressed", 0)) for line in lines.written) == 7, "of a client that is forgotten"
