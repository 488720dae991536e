"""Segments and controllers over TLS."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from support.process import BASIN, CONFIG, running_gateway
from support.tls.certificates import needs_openssl, self_signed

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_spark.clients import Endpoint, ReadPosition, open_client

pytestmark = needs_openssl
BODIES = [b"%d" % n * 40_000 for n in range(40)]


def test_events_over_tls(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    config = CONFIG
    for kind in ("segment", "controller"):
        plain = f'bind = "127.0.0.1:{{{kind}_port}}"'
        config = config.replace(plain, f'{plain}\ntls_certificate = "{certificate}"\ntls_key = "{key}"')
    with running_gateway(config) as gateway:
        endpoint = Endpoint("segment", "127.0.0.1", gateway.controller_port, directory=True, tls=True)
        endpoint = replace(endpoint, ca_file=certificate, connect_seconds=2.0)
        stream = f"{BASIN}/over-tls"
        with closing(open_client(endpoint)) as client:
            assert client.create(stream)
            appender = client.numbered_appender(stream, uuid4())
            for number, body in enumerate(BODIES):
                appender.append([body], number)
            appender.flush()
            assert list(client.streams(stream)) == [stream]
            tail = client.tail(stream)
            assert [
                body for rows in client.read(stream, ReadPosition(0, "0"), tail) for body in rows.columns.bodies
            ] == BODIES
        refused(replace(endpoint, ca_file=None), "certificate is not trusted", FailureCode.AUTHN)
        refused(replace(endpoint, tls=False, recover_seconds=0.0), "pravega://", FailureCode.UNAVAILABLE)


def refused(endpoint: Endpoint, text: str, code: FailureCode) -> None:
    with closing(open_client(endpoint)) as client, pytest.raises(OperationFailed, match=text) as raised:
        client.tail("a/b")
    assert raised.value.failure.code is code
