"""The OpenAPI document of the S2 API has the endpoints that the codec has; `make judges` holds a gateway to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.model.access_tokens import Op
from penstock_s2.codec.routes import S2Endpoint, match_route

DOCUMENT = yaml.safe_load((Path(__file__).parents[2] / "docs" / "protocols" / "s2-openapi.yaml").read_text())
METHODS = ("get", "post", "put", "patch", "delete")


def operations() -> dict[S2Endpoint, dict[str, Any]]:
    """The document's operations, by what the codec makes of their paths."""
    found = {}
    for path, item in DOCUMENT["paths"].items():
        endpoints = match_route(path).endpoints
        assert {method.lower() for method in endpoints} == item.keys() - {"parameters"}, path
        found |= {endpoints[method.upper()]: item[method] for method in METHODS if method in item}
    return found


def test_it_has_every_endpoint_of_the_codec() -> None:
    assert operations().keys() == set(S2Endpoint)


def test_operations_are_named_as_the_endpoints_are() -> None:
    for endpoint, operation in operations().items():
        if endpoint is not S2Endpoint.HEALTH:  # it has two paths
            assert operation["operationId"].lower() == endpoint.name.replace("_", "").lower()


def test_tokens_may_allow_what_the_codec_knows() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["AccessTokenOperation"]["enum"] == [op.value for op in Op]


def references(value: object) -> list[str]:
    """Every `$ref` in a part of the document."""
    match value:
        case {"$ref": str(target), **rest}:
            return [target, *references(rest)]
        case dict():
            return [target for each in value.values() for target in references(each)]
        case list():
            return [target for each in value for target in references(each)]
        case _:
            return []


@pytest.mark.parametrize("target", sorted(set(references(DOCUMENT))))
def test_references_lead_somewhere(target: str) -> None:
    part: Any = DOCUMENT
    for name in target.removeprefix("#/").split("/"):
        part = part[name]
    assert part
