"""No key that holds a secret is shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from penstock.app.config import Config, default_config
from penstock.app.config.tracing import Tracing
from penstock.app.config.urls import without_secrets
from penstock.app.management.about_state import _SECRET, masked
from penstock.core.config_fields import Token

TOKEN = next(meta for meta in get_args(Token) if isinstance(meta, msgspec.Meta))


def secret_keys(struct: type[msgspec.Struct], seen: set[type] | None = None) -> Iterator[str]:
    """The keys of all tables whose values are tokens, or have them in them."""
    seen = set() if seen is None else seen
    if struct in seen:
        return
    seen.add(struct)
    for name, hint in get_type_hints(struct, include_extras=True).items():
        inner = list(parts(hint))
        if TOKEN in inner:
            yield name
        for one in inner:
            if isinstance(one, type) and issubclass(one, msgspec.Struct):
                yield from secret_keys(one, seen)


def parts(hint: Any) -> Iterator[Any]:
    yield hint
    if get_origin(hint) is not None or get_origin(hint) in (Annotated, Union):
        for inner in get_args(hint):
            yield from parts(inner)
    elif hasattr(hint, "__args__"):
        for inner in hint.__args__:
            yield from parts(inner)


def test_tokens_are_found() -> None:
    assert {"auth_tokens", "token", "tokens"} <= set(secret_keys(Config))


@pytest.mark.parametrize("key", sorted(set(secret_keys(Config))))
def test_each_is_masked(key: str) -> None:
    assert _SECRET.search(key)


@pytest.mark.parametrize("key", ["token_file", "tokens_file", "tls_key", "password_file", "stream"])
def test_what_names_a_file_is_not(key: str) -> None:
    assert not _SECRET.search(key)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("http://127.0.0.1:4318/v1/traces", "http://127.0.0.1:4318/v1/traces"),
        ("https://user:secret@host/v1", "https://(masked)@host/v1"),
        ("HTTP://host/v1?api-key=secret&b=@c", "HTTP://host/v1?(masked)"),
        ("https://secret@host?secret", "https://(masked)@host?(masked)"),
        ("spiffe://plant/line-?", "spiffe://plant/line-?"),
    ],
)
def test_of_a_url_no_secret_is_shown(given: str, shown: str) -> None:
    assert without_secrets(given) == shown


def test_a_collector_s_secrets_are_shown_nowhere() -> None:
    tracing = Tracing(endpoint="https://user:secret@host/v1/traces?api-key=secret")
    config = msgspec.structs.replace(default_config(), tracing=tracing)
    assert masked(config)["tracing"]["endpoint"] == "https://(masked)@host/v1/traces?(masked)"
    assert "secret" not in tracing.in_words and "//(masked)@host/v1/traces" in tracing.in_words
