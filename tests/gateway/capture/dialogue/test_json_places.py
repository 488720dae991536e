"""Places of complaints in JSON texts that end within a string."""

import pytest

from penstock.capture.dialogue.http.json_places import place_of


@pytest.mark.timeout(60)
def test_a_string_without_an_end_is_looked_at_once() -> None:
    """Each of its quotes was tried as the beginning of another string: the square of its length."""
    start = b'{"records":[{"body":5}],"x":["'
    assert place_of(start + rb"\"" * 500_000, "Expected `str`, got `int` - at `$.records[0].body`") == 20


def test_the_last_of_several_members_counts() -> None:
    text = b'{"a":[{"b":1,"b":{"c":"]}"}},2],"a":[{"b":3}]}'
    assert place_of(text, "Expected `str`, got `int` - at `$.a[0].b`") == text.index(b"3}]}")
