"""curl, over HTTP/1.1 and over HTTP/2 with prior knowledge, on the same port."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import IO

import pytest
from support.peers import Curl, need
from support.process import GatewayProcess

JSON = ("-H", "content-type: application/json")

VERSIONS = pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])


@pytest.fixture
def url(gateway: GatewayProcess, stream: str) -> str:
    return f"http://127.0.0.1:{gateway.s2_port}/v1/streams/{stream}/records"


@pytest.fixture
def there(basin: str) -> tuple[str, ...]:
    """The arguments that name the basin."""
    return ("-H", f"s2-basin: {basin}")


def append(curl: Curl, url: str, there: tuple[str, ...], *bodies: str) -> dict[str, dict[str, int]]:
    records = json.dumps({"records": [{"body": body} for body in bodies]})
    answer = curl("--fail", *there, *JSON, "--data-binary", "@-", url, stdin=records.encode())
    assert answer.returncode == 0, answer.stderr
    ack: dict[str, dict[str, int]] = json.loads(answer.stdout)
    return ack


@VERSIONS
def test_append_read_and_tail(curl: Curl, url: str, there: tuple[str, ...], version: str) -> None:
    ask = (version, "--fail", *there)
    body = b'{"records":[{"body":"one","headers":[["k","v"]]},{"body":"two"}]}'
    ack = json.loads(curl(*ask, *JSON, "--data-binary", "@-", url, stdin=body).stdout)
    assert (ack["start"]["seq_num"], ack["end"]["seq_num"]) == (0, 2)
    assert json.loads(curl(*ask, f"{url}/tail").stdout) == {"tail": ack["tail"]}
    records = json.loads(curl(*ask, f"{url}?seq_num=0").stdout)["records"]
    assert [(r["seq_num"], r["body"], r.get("headers")) for r in records] == [
        (0, "one", [["k", "v"]]),
        (1, "two", None),
    ]
    encoded = json.loads(curl(*ask, "-H", "s2-format: base64", f"{url}?seq_num=1").stdout)["records"]
    assert encoded[0]["body"] == "dHdv"


@VERSIONS
def test_errors_have_a_status_a_code_and_a_message(curl: Curl, url: str, there: tuple[str, ...], version: str) -> None:
    def status(*args: str, stdin: bytes = b"") -> tuple[int, dict[str, object]]:
        answer = curl(version, "-w", "\n%{http_code}", *args, stdin=stdin)
        body, _, code = answer.stdout.rpartition(b"\n")
        return int(code), json.loads(body) if body else {}

    append(curl, url, there, "x")
    assert status(*there, f"{url}?seq_num=1")[0] == 416
    code, error = status(f"{url}/tail")
    assert (code, error["code"]) == (400, "bad_header")
    code, error = status(*there, *JSON, "-d", '{"records":[', url)
    assert (code, error["code"]) == (400, "bad_json")
    code, error = status(*there, *JSON, "-d", '{"records":[{"body":"x"}],"match_seq_num":7}', url)
    assert (code, error) == (412, {"seq_num_mismatch": 1})
    assert status(*there, "-X", "DELETE", url)[0] == 405
    assert status(*there, url.replace("/v1/", "/v9/"))[0] == 404


@VERSIONS
def test_a_large_body_after_expect_100_continue(curl: Curl, url: str, there: tuple[str, ...], version: str) -> None:
    """curl asks before it sends more than a mebibyte; over HTTP/1.1 it waits a second for the answer."""
    body = json.dumps({"records": [{"body": "\\u0041" * 180_000}]}).encode().replace(b"\\\\u", b"\\u")
    assert 1024 * 1024 < len(body) < 2 * 1024 * 1024
    began = time.monotonic()
    answer = curl(
        version,
        "--fail",
        "-v",
        *there,
        *JSON,
        "-H",
        "expect: 100-continue",
        "--expect100-timeout",
        "15",
        "--data-binary",
        "@-",
        url,
        stdin=body,
    )
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["end"]["seq_num"] == 1
    assert time.monotonic() - began < 10
    if version == "--http1.1":
        assert b"HTTP/1.1 100" in answer.stderr
    read = json.loads(curl(version, "--fail", *there, f"{url}?seq_num=0").stdout)
    assert read["records"][0]["body"] == "A" * 180_000


@VERSIONS
def test_compressed_answers_are_understood(curl: Curl, url: str, there: tuple[str, ...], version: str) -> None:
    append(curl, url, there, *("compressible " * 20 for _ in range(50)))
    answer = curl(version, "--fail", "--compressed", *there, f"{url}?seq_num=0")
    assert len(json.loads(answer.stdout)["records"]) == 50


@VERSIONS
@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_compressed_requests_are_understood(
    curl: Curl, url: str, there: tuple[str, ...], version: str, encoding: str
) -> None:
    import gzip

    import zstandard

    plain = json.dumps({"records": [{"body": "squeezed " * 100}]}).encode()
    body = gzip.compress(plain) if encoding == "gzip" else zstandard.ZstdCompressor().compress(plain)
    how = ("-H", f"content-encoding: {encoding}", "--data-binary", "@-")
    answer = curl(version, "--fail", *there, *JSON, *how, url, stdin=body)
    assert answer.returncode == 0, answer.stderr
    read = json.loads(curl(version, "--fail", *there, f"{url}?seq_num=0").stdout)
    assert read["records"][0]["body"] == "squeezed " * 100


def follow(version: str, *args: str) -> subprocess.Popen[bytes]:
    """Starts a curl that prints as it receives; ends by itself after 20 s."""
    program = need("curl")
    command = [program, version, "--silent", "--no-buffer", "--noproxy", "*", "--max-time", "20", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)


def read_event(process: subprocess.Popen[bytes]) -> dict[str, str]:
    """The next server-sent event as its fields."""
    assert process.stdout is not None
    fields: dict[str, str] = {}
    while line := process.stdout.readline():
        text = line.decode().rstrip("\n")
        if not text:
            return fields
        name, _, value = text.partition(": ")
        fields[name] = value
    return fields


@VERSIONS
def test_following_by_server_sent_events(curl: Curl, url: str, there: tuple[str, ...], version: str) -> None:
    append(curl, url, there, "before")
    process = follow(version, *there, "-H", "accept: text/event-stream", f"{url}?seq_num=0")
    try:
        batch = read_event(process)
        assert (batch["event"], batch["id"]) == ("batch", "0,1,14")
        assert json.loads(batch["data"])["records"][0]["body"] == "before"
        ping = read_event(process)
        assert ping["event"] == "ping"
        assert "id" not in ping
        assert json.loads(ping["data"])["tail"]["seq_num"] == 1
        append(curl, url, there, "live")
        batch = read_event(process)
        assert (batch["event"], batch["id"]) == ("batch", "1,2,26")
        assert json.loads(batch["data"])["records"][0]["body"] == "live"
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@VERSIONS
def test_a_bounded_event_stream_says_done_and_ends(curl: Curl, url: str, there: tuple[str, ...], version: str) -> None:
    append(curl, url, there, *(f"{n}" for n in range(6)))
    sse = ("--fail", version, *there, "-H", "accept: text/event-stream")
    answer = curl(*sse, f"{url}?seq_num=0&count=2")
    assert answer.stdout.endswith(b"\n\ndata: [DONE]\n\n")
    assert b"id: 1,2,18\n" in answer.stdout
    again = curl(*sse, "-H", "last-event-id: 1,2,18", f"{url}?seq_num=0&count=5")
    assert b"id: 4,5,45\n" in again.stdout


@VERSIONS
def test_a_binary_read_session(curl: Curl, url: str, there: tuple[str, ...], version: str, tmp_path: Path) -> None:
    """Frames as the S2 fact sheet spells them (2.1), taken apart by hand."""
    ack = append(curl, url, there, "hi", "there")
    out = tmp_path / "frames"
    answer = curl(
        version, "--fail", *there, "-H", "content-type: s2s/proto", "-o", str(out), f"{url}?seq_num=0&count=2"
    )
    assert answer.returncode == 0, answer.stderr
    data = out.read_bytes()
    bodies = []
    while data:
        length = int.from_bytes(data[:3], "big")
        assert data[3] == 0  # no flag: neither terminal nor compressed
        bodies.append(data[4 : 3 + length])
        data = data[3 + length :]
    together = b"".join(bodies)
    assert b"\x22\x02hi" in together
    assert b"\x22\x05there" in together
    assert ack["end"]["seq_num"] == 2


def test_a_full_duplex_append_session_over_http_1(url: str, there: tuple[str, ...]) -> None:
    """curl -T - sends what it is given and prints what it gets (S2 fact sheet, 7.5).

    It looks at the answer only between two pieces of its input, so that the input is fed piece by piece; still all
    but the last acknowledgements must come while the request is open.
    """
    program = need("curl")
    command = [program, "--http1.1", "-sN", "--noproxy", "*", "--max-time", "20", *there]
    command += ["-X", "POST", "-H", "content-type: s2s/proto", "-H", "expect:", "-T", "-", url]
    frame = bytes.fromhex("00000f000a0c12060a016b1201761a026869")  # one record, header k=v, body "hi"
    closing = threading.Event()

    def feed(pipe: IO[bytes]) -> None:
        with pipe:
            for _ in range(20):
                pipe.write(frame)
                pipe.flush()
                time.sleep(0.05)
            closing.set()

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        feeding = threading.Thread(target=feed, args=(process.stdin,))
        feeding.start()
        acks = early = 0
        while head := process.stdout.read(4):
            assert head[3] == 0  # neither terminal nor compressed
            assert process.stdout.read(int.from_bytes(head[:3], "big") - 1).startswith(b"\x0a")
            acks += 1
            early += not closing.is_set()
        feeding.join()
    assert process.returncode == 0
    assert acks == 20
    assert early >= 15


def test_the_basin_in_the_host_name(curl: Curl, gateway: GatewayProcess, basin: str, stream: str) -> None:
    """curl resolves every name under localhost to loopback by itself, as browsers do."""
    url = f"http://{basin}.localhost:{gateway.s2_port}/v1/streams/{stream}/records/tail"
    assert json.loads(curl("--fail", url).stdout)["tail"]["seq_num"] == 0


def test_a_preflight_of_a_page_that_is_not_listed_is_refused(curl: Curl, url: str) -> None:
    asks = ("-H", "origin: http://app.example", "-H", "access-control-request-method: POST")
    asks += ("-H", "access-control-request-headers: s2-basin,content-type")
    answer = curl("-i", "-X", "OPTIONS", *asks, url).stdout.decode().lower()
    assert answer.startswith("http/1.1 403")
    assert "access-control" not in answer
    assert "cors_origins" in answer


@VERSIONS
def test_health(curl: Curl, gateway: GatewayProcess, version: str) -> None:
    for path in ("health", "ping"):
        assert curl(version, "--fail", f"http://127.0.0.1:{gateway.s2_port}/{path}").stdout == b"OK"
