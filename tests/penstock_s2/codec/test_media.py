"""Media types in the headers of requests and answers."""

from __future__ import annotations

import pytest

from penstock_s2.codec.media import Media, media_type


@pytest.mark.parametrize(
    ("value", "media"),
    [
        ("application/json", Media.JSON),
        (" Application/JSON ; charset=utf-8", Media.JSON),
        ("application/problem+json", Media.JSON),
        ("application/json, text/event-stream", Media.JSON),
        ("application/protobuf", Media.PROTOBUF),
        ("application/x-protobuf", Media.PROTOBUF),
        ("s2s/proto", Media.S2S),
        ("text/event-stream, */*", Media.EVENT_STREAM),
        ("application/xml", Media.OTHER),
        ("image/x+json", Media.OTHER),
        ("*/*", Media.OTHER),
        ("", Media.OTHER),
        (None, Media.OTHER),
    ],
)
def test_the_first_type_counts(value: str | None, media: Media) -> None:
    assert media_type(value) is media
