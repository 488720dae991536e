"""S2 checklist, group H: the protocols of S2 together (S2 fact sheet, section 10). Item 89 is in test_durability."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from support.s2.client import BASE64, S2Client, b64
from support.s2.frames import append_input, record

from penstock_proto import s2_pb2 as pb


def everything(s2: S2Client, stream: str) -> list[tuple[int, int, bytes]]:
    """All records, read page by page in protobuf."""
    found: list[tuple[int, int, bytes]] = []
    tail = s2.tail(stream)["seq_num"]
    while len(found) < tail:
        found += [
            (item.seq_num, item.timestamp, item.body) for item in s2.read_proto(stream, seq_num=len(found)).records
        ]
    return found


def test_item_86_concurrent_appenders_of_every_kind(s2: S2Client, stream: str) -> None:
    """Six writers at once: one sequence without a gap, batches whole, each writer's order kept."""
    rounds, size = 30, 4

    def bodies(writer: str, number: int) -> list[bytes]:
        return [f"{writer} {number} {index}".encode() for index in range(size)]

    def by_json(writer: str) -> None:
        for number in range(rounds):
            records = [{"body": b64(body)} for body in bodies(writer, number)]
            s2.append_json(stream, {"records": records}, BASE64).json()

    def by_protobuf(writer: str) -> None:
        for number in range(rounds):
            assert s2.append_proto(stream, append_input(*bodies(writer, number))).status == 200

    def by_s2s(carrier: str) -> None:
        with s2.append_session(stream, carrier) as session:
            for number in range(rounds):
                session.send(append_input(*bodies(carrier, number)))
            for _ in range(rounds):
                session.ack()

    with ThreadPoolExecutor() as pool:
        jobs = [
            *(pool.submit(by_json, name) for name in ("json-1", "json-2")),
            *(pool.submit(by_protobuf, name) for name in ("proto-1", "proto-2")),
            *(pool.submit(by_s2s, carrier) for carrier in ("h1", "h2")),
        ]
        for job in jobs:
            job.result()
    found = everything(s2, stream)
    assert [seq_num for seq_num, _, _ in found] == list(range(6 * rounds * size))
    stamps = [timestamp for _, timestamp, _ in found]
    assert stamps == sorted(stamps)
    for first in range(0, len(found), size):  # batches are whole and contiguous
        writer, number, _ = found[first][2].decode().split()
        assert [body for _, _, body in found[first : first + size]] == bodies(writer, int(number))
    for writer in ("json-1", "proto-2", "h1", "h2"):
        own = [body for _, _, body in found if body.startswith(writer.encode() + b" ")]
        assert own == [body for number in range(rounds) for body in bodies(writer, number)]


def test_item_86_records_with_headers_by_every_way(s2: S2Client, stream: str) -> None:
    headers = [(b"\x00\xff", b"value"), (b"name", b""), (b"name", b"\r\n")]
    body = bytes(range(256))
    pairs = [[b64(name), b64(value)] for name, value in headers]
    s2.append_json(stream, {"records": [{"headers": pairs, "body": b64(body)}]}, BASE64).json()
    message = pb.AppendInput(records=[record(body, headers)]).SerializeToString()
    assert s2.append_proto(stream, message).status == 200
    with s2.append_session(stream) as session:
        session.send(message)
        session.ack()

    by_proto = [
        ([(pair.name, pair.value) for pair in item.headers], item.body)
        for item in s2.read_proto(stream, seq_num=0).records
    ]
    assert by_proto == [(headers, body)] * 3
    with s2.read_session(stream, seq_num=0, count=3) as reader:
        by_s2s = [([(pair.name, pair.value) for pair in item.headers], item.body) for item in reader.records(3)]
    assert by_s2s == by_proto
    expected = [(pairs, b64(body))] * 3
    by_json = s2.read(stream, BASE64, seq_num=0).json()["records"]
    assert [(item["headers"], item["body"]) for item in by_json] == expected
    with s2.events(stream, headers=BASE64, seq_num=0, count=3) as events:
        *batches, _ = events.rest()
    by_sse = [item for event in batches for item in event.json()["records"]]
    assert by_sse == by_json


def test_item_87_an_ack_implies_visibility(s2: S2Client, stream: str) -> None:
    """However it was acknowledged, the next read of any kind sees the record."""
    with s2.append_session(stream, "h2") as session:
        for number in range(30):
            body = f"{number}"
            if number % 3 == 0:
                s2.append(stream, body)
            elif number % 3 == 1:
                assert s2.append_proto(stream, append_input(body.encode())).status == 200
            else:
                session.send(append_input(body.encode()))
                session.ack()
            assert s2.tail(stream)["seq_num"] == number + 1
            assert s2.bodies(stream, tail_offset=1) == [body]
            assert s2.read_proto(stream, seq_num=number).records[0].body == body.encode()
            with s2.read_session(stream, seq_num=number, wait=0) as reader:
                assert reader.records(1)[0].body == body.encode()
            with s2.events(stream, seq_num=number, count=1) as events:
                assert events.batch().json()["records"][0]["body"] == body


def test_item_88_one_winner_per_position(s2: S2Client, stream: str) -> None:
    """Eight clients compete for every position with match_seq_num."""
    positions = 25
    outcomes: Counter[tuple[int, int]] = Counter()
    lock = threading.Lock()
    barrier = threading.Barrier(8)

    def compete(name: str) -> None:
        for position in range(positions):
            barrier.wait(20)
            message = append_input(f"{name} {position}".encode(), match_seq_num=position)
            answer = s2.append_proto(stream, message)
            if answer.status == 412:
                assert answer.json(412) == {"seq_num_mismatch": position + 1}
            with lock:
                outcomes[position, answer.status] += 1

    with ThreadPoolExecutor(8) as pool:
        for job in [pool.submit(compete, f"client-{number}") for number in range(8)]:
            job.result()
    assert outcomes == {
        (position, status): count for position in range(positions) for status, count in ((200, 1), (412, 7))
    }
    assert [body.split()[1] for _, _, body in everything(s2, stream)] == [b"%d" % number for number in range(positions)]
