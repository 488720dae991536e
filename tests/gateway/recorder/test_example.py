"""`config/recorder.toml` is checked, and run with a second Penstock as the server behind it."""

from __future__ import annotations

import re
from pathlib import Path

from support.captures.recording import capture_files, read_file
from support.process import BASIN, GatewayProcess
from support.real_backs import SecondPenstock
from support.relay import recorded
from support.s2.client import S2Client

from penstock.app.config import load_config
from penstock.app.config.advice import advice
from penstock.app.report import report
from penstock.capture.pcapng import Noted, Sender

EXAMPLE = Path(__file__).parents[3] / "config" / "recorder.toml"
CARD = "1234 5678 9012 3456"


def test_what_check_says() -> None:
    config = load_config(EXAMPLE)
    said = " ".join(report(config, EXAMPLE.name).split())
    assert "From the start, connections used by route orders (or with its backs)" in said
    assert "A file ends at 64 MiB; the newest are kept, up to 1024 MiB" in said
    assert "the values of record headers api-key" in said
    assert not [remark for remark in advice(config) if remark.insecure]


def test_it_records_a_route_without_its_secrets() -> None:
    with SecondPenstock("s2") as server:
        text = EXAMPLE.read_text().replace("{", "{{").replace("}", "}}")
        text = text.replace("127.0.0.1:8090", f"127.0.0.1:{server.address[1]}").replace("127.0.0.1:9600", "127.0.0.1:0")
        text = text.replace("127.0.0.1:8080", "127.0.0.1:{s2_port}").replace("127.0.0.1:7500", "127.0.0.1:{s3p_port}")
        text = re.sub(r'"\.\./data/recorder', '"{data}', text)
        with GatewayProcess(text + '[log]\nformat = "json"\n') as gateway:
            client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
            record = {"headers": [["api-key", "geheim"], ["kind", "order"]], "body": f"paid by {CARD}, thank you"}
            for stream in ("orders", "elsewhere"):
                head = {"authorization": "Bearer a-token"}
                answer = client.append_json(stream, {"records": [record]}, head)
                assert answer.status == 200
            assert gateway.terminate() == 0
            (file,) = capture_files(gateway.data / "recordings")
            events = read_file(file)
    said = recorded(events)
    (front,) = [one for one in said if one.name == "listeners.s2"]
    assert {one.name for one in said} == {"listeners.s2", "backs.lite"}
    assert {event.value for event in events if isinstance(event, Noted)} == {"orders", f"{BASIN}/orders"}
    _, question = said[front][Sender.CLIENT]
    assert b"authorization: Bearer *******\r\n" in question.replace(b"Authorization", b"authorization")
    assert b'"kind"' in question and b'"order"' in question and b"thank you" in question
    everything = b"".join(data for sides in said.values() for _, data in sides.values())
    for secret in ("a-token", "geheim", CARD):
        assert secret.encode() not in everything
    assert b"paid by " + b"*" * len(CARD) in question
