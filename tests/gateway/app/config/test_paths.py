"""Paths of files that a configuration names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest

from penstock.app.config import Config, load_config, parse_config
from penstock.core.config_fields import has
from penstock.wire.toml.hints import tables_in
from penstock_pravega.segment.config import SegmentBackTable
from penstock_s2.config import S2BackTable

PATHS = """
[listeners.s2]
tls_certificate = "certificate.pem"
tls_key = "keys/key.pem"
tls_client_ca = "/etc/ca.pem"
tls_client_crl = "revoked.pem"

[[listeners.s2.tls_certificates]]
certificate = "other.pem"
key = "other-key.pem"

[listeners.segment]
delegation_tokens = true
delegation_key_file = "delegation.key"

[access]
file = "access.sqlite3"

[store]
directory = "../data"

[recorder]
directory = "recordings"

[backs.lite]
kind = "s2"
address = "127.0.0.1:8090"
tls = true
tls_ca = "ca.pem"
tls_certificate = "client.pem"
tls_key = "client-key.pem"
credentials = "static"
token_file = "token"

[backs.pravega]
kind = "segment"
controller = "127.0.0.1:9091"
username = "penstock"
password_file = "password"
"""
PATH = re.compile(r'(?:tls_\w+|\w*key|certificate|\w*file|directory) = "(.*)"')


def located(config: Config) -> list[str | None]:
    """All paths of PATHS, in its order."""
    (s2,), (segment,) = config.listeners.s2, config.listeners.segment
    lite, pravega = config.backs["lite"], config.backs["pravega"]
    assert isinstance(lite, S2BackTable) and isinstance(pravega, SegmentBackTable)
    assert config.access is not None and config.recorder is not None
    return [
        *(s2.tls_certificate, s2.tls_key, s2.tls_client_ca, s2.tls_client_crl),
        *(s2.tls_certificates[0].certificate, s2.tls_certificates[0].key),
        *(segment.delegation_key_file, config.access.file, config.store.directory, config.recorder.directory),
        *(lite.tls_ca, lite.tls_certificate, lite.tls_key, lite.token_file, pravega.password_file),
    ]


def test_relative_paths_begin_at_the_directory_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = PATH.findall(PATHS)
    assert located(parse_config(PATHS)) == written
    place = tmp_path / "etc"
    place.mkdir()
    (place / "g.toml").write_text(PATHS)
    expected = [path if path.startswith("/") else str(place / path) for path in written]
    expected[expected.index(f"{place}/../data")] = str(tmp_path / "data")
    assert located(load_config(place / "g.toml")) == expected
    monkeypatch.chdir(tmp_path)
    assert located(load_config(Path("etc/g.toml"))) == expected
    monkeypatch.chdir(place)
    assert located(load_config(Path("g.toml"))) == written == located(load_config(place / "g.toml"))


def test_a_link_to_the_directory_is_followed_where_a_path_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "real" / "etc").mkdir(parents=True)
    (tmp_path / "etc").symlink_to("real/etc")
    (tmp_path / "etc" / "g.toml").write_text(PATHS)
    config = load_config(tmp_path / "etc" / "g.toml")
    assert config.store.directory == str(tmp_path / "real" / "data")
    assert config.recorder is not None and config.recorder.directory == str(tmp_path / "etc" / "recordings")


def tables(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """A table, and all that may be in it."""
    yield struct
    for hint in get_type_hints(struct, include_extras=True).values():
        found = tables_in(hint)
        if found is not None:
            for inner in (found.struct, *found.kinds.values()):
                if inner is not None:
                    yield from tables(inner)


def test_every_key_that_names_a_file_is_marked() -> None:
    for struct in tables(Config):
        for name, hint in get_type_hints(struct, include_extras=True).items():
            about = " ".join(meta.description or "" for meta in get_args(hint)[1:] if isinstance(meta, msgspec.Meta))
            names_one = re.search(r"_file$|^file$|^directory$", name) or "PEM file" in about
            assert has(hint, "path") == bool(names_one), f"{struct.__name__}.{name}"
