"""The table [[faults]]: errors, and the report of `penstock check` about it."""

from __future__ import annotations

import pytest

from penstock.app.config import ConfigError, parse_config
from penstock.app.report import report

S2 = "[listeners.s2]\n"


def faults(text: str) -> str:
    return f'{S2}[[faults]]\nname = "one"\n{text}\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('action = "explode"', "explode"),
        ('action = "drop"\ndelay_ms = 5', "delay_ms: applies to delay, not to drop"),
        ('action = "delay"\ncode = "other"', "code: applies to error and terminal"),
        ('action = "error"\ncode = "seq_num_mismatch"', "seq_num_mismatch"),
        ('action = "terminal"\ndirection = "in"', "terminal is always out"),
        ('action = "unknown"', "at faults[0].action: 'unknown' was removed; messages get no unknown fields any more"),
        ('action = "duplicate"', 'direction: duplicate was removed for answers; for requests, say direction = "in"'),
        ('action = "duplicate"\ndirection = "out"', "duplicate was removed for answers"),
        ('action = "drop"\ncut_places = 5', "cut_places: applies to cut, not to drop"),
        ('action = "drop"\nprobability = 1.5', "probability"),
        ('action = "drop"\nlisteners = ["s3p"]', "fault one: listeners: s3p is unknown"),
        ('action = "drop"\nroutes = ["main"]', "fault one: routes: main is unknown"),
        ('action = "drop"\nidentity = ["ann"]', "fault one: identity: ann is unknown"),
        ('action = "drop"\nmatch = "regex"\nstream = "("', "not a regular expression"),
        ('action = "drop"\n[[faults]]\nname = "one"\naction = "cut"', "fault one is defined twice"),
        ('action = "drop"\nanswer = 42', "answer"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(faults(text))
    assert words in str(caught.value)


def test_check_says_what_is_done_on_purpose() -> None:
    text = 'action = "error"\nstream = "orders"\noperations = ["append"]\nafter = 10\nprobability = 0.5\nseed = 7'
    said = " ".join(report(parse_config(faults(text)), "it").split())
    assert "Injected faults" in said
    assert (
        "one: fails with unavailable; append messages from clients of streams orders; "
        "applied to each message with probability 0.5 (seed 7) after the first 10" in said
    )
    assert "clients are disturbed on purpose, by one" in said


def test_check_says_how_often() -> None:
    said = " ".join(report(parse_config(faults('action = "drop"\nevery = 3\ntimes = 2')), "it").split())
    assert "all messages to clients; applied to one of every 3 messages, at most 2 times" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('action = "cut"', "the connection is cut after 3 bytes"),
        ('action = "cut"\ncut_places = 8', "the connection is cut at one place after the other of 8"),
        ('action = "duplicate"\ndirection = "in"', "one: duplicated; all messages from clients"),
    ],
)
def test_check_says_what_happens(text: str, words: str) -> None:
    assert words in " ".join(report(parse_config(faults(text)), "it").split())


def test_without_faults_nothing_is_said_of_them() -> None:
    assert "purpose" not in report(parse_config(S2), "it")
