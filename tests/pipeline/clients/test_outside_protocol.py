"""A protocol of another distribution: found by its entry point, read by the source, refused by the sink."""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

LINES = ["first", "second", "third", "fourth"]
PLUGIN = """
from penstock_spark.clients.plugin import ClientPlugin, Scheme

def open_client(endpoint):
    from lines_client import LinesClient
    return LinesClient(endpoint)

PLUGIN = ClientPlugin(open=open_client, schemes={"lines": Scheme(4711)}, lists=False, basins=False)
"""
CLIENT = '''
import socket
from penstock_codecs.model import Columns
from penstock_spark.clients.base import ReadPosition, ReadResult

class LinesClient:
    """A stream is the lines that answer its name; one request for each connection."""

    indexed = True

    def __init__(self, endpoint):
        self._endpoint = endpoint

    def require(self, stream):
        pass

    def first(self, stream):
        return ReadPosition(0)

    def tail(self, stream, after=None):
        return ReadPosition(len(self._lines(stream)))

    def identity(self, stream, mark, like=""):
        return ""

    def read(self, stream, start, end):
        bodies = self._lines(stream)[start.seq_num : end.seq_num]
        yield ReadResult(Columns(range(start.seq_num, end.seq_num), (), bodies, {}), end)

    def close(self):
        pass

    def _lines(self, stream):
        address = self._endpoint.host, self._endpoint.port
        with socket.create_connection(address) as connection, connection.makefile("rwb") as file:
            file.write(stream.encode() + b"\\n")
            file.flush()
            return [line.rstrip(b"\\n") for line in file]
'''
PROGRAM = """
import json, pickle, sys
from penstock_spark.cli.views import _stream_url
from penstock_spark.options import WrongOptions
from penstock_spark.schemas import RECORDS, spark_schema
from penstock_spark.sink.options import read_settings
from penstock_spark.source.datasource import PenstockDataSource

address = sys.argv[1]
assert "lines_client" not in sys.modules
source = PenstockDataSource({"endpoint": address, "stream": "poem", "start": "seq_num:1", "min_partitions": "2"})
reader = pickle.loads(pickle.dumps(source.reader(spark_schema(RECORDS))))
parts = reader.partitions()
assert len(parts) >= 2, parts
bodies = [body for part in parts for batch in reader.read(part) for body in batch.column("body").to_pylist()]
try:
    read_settings({"endpoint": address, "stream": "a/b"}, streaming=False)
    refused = ""
except WrongOptions as wrong:
    refused = str(wrong)
urls = [_stream_url(one) is not None for one in (f"{address}/poem", "hdfs://h:1/poem")]
print(json.dumps([[body.decode() for body in bodies], refused, urls]))
"""


class _Lines(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert self.rfile.readline() == b"poem\n"
        self.wfile.write("".join(f"{line}\n" for line in LINES).encode())


@pytest.fixture
def port() -> Iterator[int]:
    """A server of the protocol."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Lines) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        yield server.server_address[1]
        server.shutdown()
        serving.join()


def test_a_protocol_of_another_distribution_is_read(port: int, tmp_path: Path) -> None:
    information = tmp_path / "lines_for_penstock-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: lines-for-penstock\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[penstock.spark]\nlines = lines_plugin:PLUGIN\n")
    (tmp_path / "lines_plugin.py").write_text(PLUGIN)
    (tmp_path / "lines_client.py").write_text(CLIENT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    words = [sys.executable, "-c", PROGRAM, f"lines://127.0.0.1:{port}"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, refused, are_addresses = json.loads(done.stdout)
    assert found == LINES[1:]
    assert "endpoint: it has no conditional appends" in refused
    assert are_addresses == [True, False]
