"""Names of streams on the command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.records import StreamRef
from penstock.tools.target.naming import parse_name
from penstock.tools.target.url import BadTarget


@pytest.mark.parametrize(
    ("text", "server", "stream", "shown"),
    [
        ("orders", "s2://h:1", ("penstock", "orders"), "s2://h:1/penstock/orders"),
        ("warehouse/orders/eu", "s2://h:1", ("warehouse", "orders/eu"), "s2://h:1/warehouse/orders/eu"),
        ("orders/eu", "s2://h:1/warehouse", ("warehouse", "orders/eu"), "s2://h:1/warehouse/orders/eu"),
        ("s2://h:1/warehouse/orders/eu", "s2://x:2", ("warehouse", "orders/eu"), "s2://h:1/warehouse/orders/eu"),
        ("s2+tls://h:1/warehouse/a%2Fb%3F", "s2://x:2", ("warehouse", "a/b?"), "s2+tls://h:1/warehouse/a/b?"),
        ("https://h/warehouse/orders", "s2://x:2", ("warehouse", "orders"), "s2+tls://h:443/warehouse/orders"),
        ("s3p://h:1/orders/eu", "s2://x:2", ("penstock", "orders/eu"), "s3p://h:1/orders/eu"),
        ("orders", "s3p://h:1", ("penstock", "penstock/orders"), "s3p://h:1/penstock/orders"),
        ("pravega://h:1/Big_Scope/s", "s2://x:2", ("Big_Scope", "s"), "pravega://h:1/Big_Scope/s"),
        ("segment+draft://h:1/scope/s", "s2://x:2", ("scope", "s"), "segment+draft://h:1/scope/s"),
    ],
)
def test_streams(text: str, server: str, stream: tuple[str, str], shown: str) -> None:
    name = parse_name(text, server)
    assert ((name.basin, name.stream), str(name)) == (stream, shown)
    assert name.ref == StreamRef(name.reached_basin, name.stream)


@pytest.mark.parametrize(
    ("text", "basin", "shown"),
    [
        ("", "", "s2://h:1"),
        ("warehouse/", "warehouse", "s2://h:1/warehouse"),
        ("s2://h:1", "", "s2://h:1"),
        ("s2://h:1/warehouse", "warehouse", "s2://h:1/warehouse"),
        ("s3p://h:1", "penstock", "s3p://h:1"),
    ],
)
def test_basins_and_servers(text: str, basin: str, shown: str) -> None:
    name = parse_name(text, "s2://h:1")
    assert (name.basin, name.stream, str(name)) == (basin, "", shown)
    with pytest.raises(BadTarget, match=f"{shown}: the name of a stream is missing"):
        _ = name.ref


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nope://h:1/warehouse/orders", "is no server"),
        ("warehouse/\udcff", "is not UTF-8: invalid start byte at byte 10"),
        ("s2://h/warehouse/orders", "HOST:PORT is missing"),
        ("s2://user@h:1/warehouse/orders", "nothing but HOST:PORT"),
        ("s2://h:1/warehouse/orders?x=1", "write [?] and # in names"),
        ("s2://h:1/warehouse/orders#x", "write [?] and # in names"),
        ("s2://h:1/No_Basin/orders", "basin"),
        ("No_Basin/orders", "basin"),
    ],
)
def test_refused(text: str, why: str) -> None:
    with pytest.raises(BadTarget, match=why):
        parse_name(text, "s2://h:1")


@given(st.text(max_size=30))
def test_any_text_is_a_name_or_refused_as_one(text: str) -> None:
    try:
        parse_name(text)
    except BadTarget as error:
        assert "\n" not in str(error)
