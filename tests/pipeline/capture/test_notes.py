"""The route of a message, as far as notes make it certain."""

from __future__ import annotations

from penstock_spark.capture.notes import MOST_VALUES, Notes


def notes(*pairs: tuple[str, str]) -> Notes:
    found = Notes()
    for pair in pairs:
        found.add(*pair)
    return found


def test_one_route_has_everything() -> None:
    one = notes(("route", "r"), ("stream", "b/s"), ("identity", "me"), ("stream", "b/t"))
    assert one.route_of("b/anything") == one.route_of("") == one.route == "r"
    assert one.identity == "me" and one.values["stream"] == ["b/s", "b/t"]


def test_of_several_routes_the_one_noted_with_the_stream() -> None:
    several = notes(
        *[("route", "r1"), ("stream", "b/s1"), ("stream", "b/s2")],
        *[("route", "r2"), ("stream", "b/s3"), ("stream", "b/s4")],
    )
    assert several.route is None and several.route_of("") is None
    assert [several.route_of(f"b/s{number}") for number in (1, 2, 3, 4, 5)] == ["r1", "r1", "r2", None, None]
    assert several.route_of("s3") == "r2", "S3P's names have no basin"
    assert several.route_of("b/s3/0.#epoch.0") == "r2", "a segment of the stream"


def test_what_is_said_again_in_the_next_file_changes_nothing() -> None:
    said = [("route", "r1"), ("stream", "b/s1"), ("route", "r2"), ("stream", "b/s2"), ("stream", "b/s1")]
    again = notes(*said, *said)
    assert [again.route_of(f"b/s{number}") for number in (1, 2)] == ["r1", "r2"]


def test_nothing_noted_and_too_much() -> None:
    assert notes().route is None and notes().identity is None and notes().route_of("b/s") is None
    assert notes(("identity", "me"), ("identity", "you")).identity is None
    assert len(notes(*[("stream", f"b/{number}") for number in range(200)]).values["stream"]) == MOST_VALUES
