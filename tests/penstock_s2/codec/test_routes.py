"""Routes of S2's paths (S2 fact sheet 1.1 to 1.3)."""

import pytest

from penstock_s2.codec.routes import S2Endpoint, match_route


@pytest.mark.parametrize(
    ("method", "path", "endpoint", "parameters"),
    [
        ("GET", "/health", S2Endpoint.HEALTH, {}),
        ("GET", "/ping", S2Endpoint.HEALTH, {}),
        ("PUT", "/v1/basins/b", S2Endpoint.ENSURE_BASIN, {"basin": "b"}),
        ("PATCH", "/v1/streams/s", S2Endpoint.RECONFIGURE_STREAM, {"stream": "s"}),
        ("POST", "/v1/streams/a%2Fb/records", S2Endpoint.APPEND, {"stream": "a%2Fb"}),
        ("GET", "/v1/streams/a%2Fb/records/tail", S2Endpoint.CHECK_TAIL, {"stream": "a%2Fb"}),
        ("GET", "/v1/basins/b/streams/s/read", S2Endpoint.READ, {"basin": "b", "stream": "s"}),
        ("POST", "/v1/basins/b/streams/s/append", S2Endpoint.APPEND, {"basin": "b", "stream": "s"}),
        ("DELETE", "/v1/access-tokens/t", S2Endpoint.REVOKE_ACCESS_TOKEN, {"id": "t"}),
        ("GET", "/v1/metrics/b/s", S2Endpoint.STREAM_METRICS, {"basin": "b", "stream": "s"}),
        ("PUT", "/v1/locations/default", S2Endpoint.SET_DEFAULT_LOCATION, {}),
    ],
)
def test_a_path_and_method_lead_to_one_endpoint(
    method: str, path: str, endpoint: S2Endpoint, parameters: dict[str, str]
) -> None:
    match = match_route(path)
    assert match.endpoints[method] is endpoint
    assert match.parameters == parameters


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/v1",
        "/v1/streams/a/b/records",
        "/v1/streams/",
        "/v1/metrics/b/",
        "/v1//streams",
        "/V1/streams",
        "/health/",
    ],
)
def test_other_paths_lead_nowhere(path: str) -> None:
    assert not match_route(path).endpoints


def test_a_method_that_a_path_does_not_have_is_absent() -> None:
    assert set(match_route("/v1/streams/s/records").endpoints) == {"GET", "POST"}


def test_an_empty_name_in_the_middle_is_a_name() -> None:
    """An invalid one, as in S2."""
    assert match_route("/v1/streams//records").parameters == {"stream": ""}
