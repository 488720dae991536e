"""A gateway with two workers, over real sockets: each sees the changes of the other's clients, and processes are
killed.
"""

import itertools
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from support.crews import TWO, connection_of, served_by, session_in, started, until
from support.management import ask
from support.process import BASIN, GatewayProcess, running_gateway
from support.s2.client import S2Client
from support.s2.frames import append_input

from penstock.app.workers.process import CONNECTIONS


@pytest.fixture(scope="module")
def shared() -> Iterator[GatewayProcess]:
    """A gateway for tests that stop no process: each test uses streams of its own."""
    with running_gateway(TWO) as gateway:
        yield gateway


def client_of(gateway: GatewayProcess) -> S2Client:
    return S2Client(("127.0.0.1", gateway.s2_port), BASIN)


def gone(process: int) -> bool:
    """Return whether the process has ended."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(("writer", "reader"), [(1, 2), (2, 1)])
def test_a_follower_sees_at_once_what_is_appended_in_the_other_worker(
    shared: GatewayProcess, writer: int, reader: int
) -> None:
    client, stream = client_of(shared), f"follow-{writer}"
    with (
        session_in(shared, client, writer, stream) as session,
        session_in(shared, client, reader, stream, seq_num=0) as follower,
    ):
        for number in range(200):
            session.send(append_input(b"%d" % number))
            (record,) = follower.records(1)
            assert (record.seq_num, record.body) == (number, b"%d" % number)
            assert session.ack().end.seq_num == number + 1


def test_two_writers_in_two_workers_share_one_order(shared: GatewayProcess) -> None:
    """Each prepares numbers that the other gets; acknowledged records are at the acknowledged positions."""
    client, places = client_of(shared), {}
    with session_in(shared, client, 1, "both") as one, session_in(shared, client, 2, "both") as two:
        for turn in range(100):
            for name, session in (("one", one), ("two", two)):
                session.send(append_input(*[b"%s-%d" % (name.encode(), turn)] * 3))
        for turn in range(100):
            for name, session in (("one", one), ("two", two)):
                places[session.ack().start.seq_num] = f"{name}-{turn}"
    assert sorted(places) == list(range(0, 600, 3))
    expected = [places[number] for number in sorted(places) for _ in range(3)]
    assert client.bodies("both", seq_num=0, count=600) == expected


def test_conditions_hold_across_workers(shared: GatewayProcess) -> None:
    """A fence that one worker's client sets keeps out that of the other, also in a session that is open."""
    client = client_of(shared)
    with session_in(shared, client, 1, "fenced") as one, session_in(shared, client, 2, "fenced") as two:
        one.send(append_input(b"x"))
        one.ack()
        assert client.fence("fenced", "mine").status == 200
        two.send(append_input(b"y", fencing_token="other"))
        assert two.failure()[0] == 412
        one.send(append_input(b"z", match_seq_num=2, fencing_token="mine"))
        assert one.ack().end.seq_num == 3


def test_a_stream_that_is_deleted_ends_the_sessions_of_both(shared: GatewayProcess) -> None:
    client = client_of(shared)
    client.append("doomed", "x")
    followers = [session_in(shared, client, worker, "doomed", seq_num=0) for worker in (1, 2)]
    assert [len(follower.records(1)) for follower in followers] == [1, 1]
    assert client.request("DELETE", "/v1/streams/doomed").status == 202
    for follower in followers:
        assert follower.rest()[-1].failure[0] == 404  # behind a heartbeat
        follower.close()
    client.append("doomed", "new")
    assert client.bodies("doomed", seq_num=0, count=10) == ["new"]


class Op(NamedTuple):
    """One operation of a client: when it began and ended, its kind, and its result."""

    begun: float
    ended: float
    kind: str
    first: int
    end: int


@dataclass
class Histories:
    """Operations of several clients, each with connections of its own and the same number of operations."""

    client: S2Client
    stream: str
    done: list[Op]
    failures: list[BaseException]

    def run(self, seed: int, count: int) -> None:
        rng = random.Random(seed)
        try:
            for number in range(count):
                self.step(rng, f"{seed}-{number}")
        except BaseException as error:
            self.failures.append(error)

    def step(self, rng: random.Random, name: str) -> None:
        kind, begun = rng.choice(("append", "append", "match", "tail", "read")), time.monotonic()
        first = end = -1
        if kind == "append":
            ack = self.client.append(self.stream, *[name] * rng.randint(1, 3))
            first, end = ack["start"]["seq_num"], ack["end"]["seq_num"]
        elif kind == "match":
            wanted = self.client.tail(self.stream)["seq_num"]
            begun = time.monotonic()
            answer = self.client.append_json(self.stream, {"records": [{"body": name}], "match_seq_num": wanted})
            if answer.status == 200:
                kind, first, end = "append", wanted, answer.json()["end"]["seq_num"]
            else:  # it says where the tail was
                kind, end = "tail", answer.json(412)["seq_num_mismatch"]
                assert end != wanted
        elif kind == "tail":
            end = self.client.tail(self.stream)["seq_num"]
        else:
            kind, end = "tail", len(self.client.bodies(self.stream, seq_num=0, count=1000))
        self.done.append(Op(begun, time.monotonic(), kind, first, end))


def test_histories_are_linearizable(shared: GatewayProcess) -> None:
    """For a log of appends it is enough that appends have positions in the order of their times, that none overlaps
    another, and that a check of the tail sees all that was acknowledged before it began and nothing begun after it
    ended.
    """
    client = client_of(shared)
    client.append("linear", "first")
    histories = Histories(client, "linear", [], [])
    threads = [threading.Thread(target=histories.run, args=(seed, 40)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not histories.failures, histories.failures
    appends = sorted((op for op in histories.done if op.kind == "append"), key=lambda op: op.first)
    assert [op.first for op in appends] == [1, *(op.end for op in appends[:-1])]
    for one, two in itertools.combinations(histories.done, 2):
        for before, after in ((one, two), (two, one)):
            if before.ended < after.begun:
                assert before.end <= (after.first if after.kind == "append" else after.end), (before, after)
    assert client.tail("linear")["seq_num"] == appends[-1].end


def test_management_knows_all_workers(shared: GatewayProcess) -> None:
    client, port = client_of(shared), shared.management_port
    sessions = [session_in(shared, client, worker, "managed", seq_num=0, clamp="true") for worker in (1, 2)]
    numbers = [connection_of(shared, session) for session in sessions]
    assert [number // CONNECTIONS for number in numbers] == [1, 2]
    assert ask(port, f"/connections/{max(numbers)}/close", {})[0] == 200
    until(lambda: max(numbers) not in {one["connection"] for one in ask(port, "/connections")[1]["connections"]})
    assert served_by(shared, sessions[0]) == 1
    assert ask(port, "/recordings", {})[0] == 501
    assert ask(port, f"/connections/{max(numbers)}/close", {})[0] == 404
    for session in sessions:
        session.close()


def test_a_reload_reaches_all_or_changes_nothing(shared: GatewayProcess) -> None:
    port, path = shared.management_port, shared.directory / "gateway.toml"
    before = path.read_text()
    with session_in(shared, client_of(shared), 1, "reloaded") as session:
        path.write_text(before.replace("deadline_seconds = 5", "deadline_seconds = 6"))
        assert ask(port, "/reload", {})[0] == 200
        told = shared.events("reloaded")
        assert sorted(one.get("worker", 0) for one in told) == [0, 1, 2], told
        for change, named in (
            ("workers = 3", "workers"),
            ("workers = 2\n[[listeners.s2]]\nname = 'new'\nbind = '127.0.0.1:0'", "listeners"),
            ("workers = 2\nnonsense = 1", "nonsense"),
        ):
            text = before.replace("[listeners.s2]", "[[listeners.s2]]").replace("workers = 2", change, 1)
            path.write_text(text if "[[listeners.s2]]" in change else before.replace("workers = 2", change, 1))
            status, answer = ask(port, "/reload", {})
            assert status == 409 and named in str(answer), answer
        assert len(shared.events("reloaded")) == 3
        session.send(append_input(b"on"))
        assert session.ack().end.seq_num == 1


def test_a_killed_worker_loses_no_acknowledged_record_and_a_drain_reaches_all() -> None:
    with GatewayProcess(TWO) as gateway:
        kill_a_worker(gateway)
        kill_the_parent(gateway)
        gateway.start()
        assert client_of(gateway).bodies("b", seq_num=0, count=50) == [str(number) for number in range(50)]
        reload_as_a_worker_starts(gateway)
        drain(gateway)


def reload_as_a_worker_starts(gateway: GatewayProcess) -> None:
    """It has been given the old configuration, and has the new one all the same."""
    before, path = started(gateway), gateway.directory / "gateway.toml"
    text = path.read_text()
    os.kill(before[1], 9)
    until(lambda: started(gateway)[1] != before[1])
    path.write_text(text + '\n[[routes]]\nname = "all"\nread_only = true\n')
    assert ask(gateway.management_port, "/reload", {})[0] == 200
    client = client_of(gateway)
    seen = {client.append_json("a", {"records": [{"body": "x"}]}).status for _ in range(20)}
    assert seen == {403}
    path.write_text(text)
    assert ask(gateway.management_port, "/reload", {})[0] == 200


def kill_a_worker(gateway: GatewayProcess) -> None:
    """Kill a worker: the other goes on, it is started again, and acknowledged records are there."""
    client, processes = client_of(gateway), started(gateway)
    acked = 0
    with session_in(gateway, client, 1, "a") as one, session_in(gateway, client, 2, "b") as two:
        for number in range(200):
            one.send(append_input(b"%d" % number))
            two.send(append_input(b"%d" % number))
        os.kill(processes[1], 9)
        with suppress(ConnectionError, AssertionError):
            while one.ack():
                acked += 1
        for number in range(200):
            assert two.ack().end.seq_num == number + 1
    until(lambda: started(gateway)[1] != processes[1])
    assert started(gateway)[2] == processes[2]
    assert client.tail("a")["seq_num"] >= acked
    with session_in(gateway, client, 1, "a") as again:
        again.send(append_input(b"again"))
        assert again.ack().start.seq_num >= acked
    (event,) = gateway.events("worker_ended")
    assert (event["worker"], event["code"]) == (1, -9)


def kill_the_parent(gateway: GatewayProcess) -> None:
    """Its workers end."""
    client, processes = client_of(gateway), started(gateway)
    with session_in(gateway, client, 1, "c") as one, session_in(gateway, client, 2, "d") as two:
        for number in range(100):
            one.send(append_input(b"%d" % number))
            two.send(append_input(b"%d" % number))
        assert [session.ack().end.seq_num for session in (one, two) for _ in range(50)] == [*range(1, 51)] * 2
        gateway.kill()
    until(lambda: all(map(gone, processes.values())))


def drain(gateway: GatewayProcess) -> None:
    """Check that appends sent before the gateway is stopped are acknowledged."""
    client, processes = client_of(gateway), started(gateway)
    before = [client.tail(stream)["seq_num"] for stream in "cd"]
    assert min(before) >= 50
    with session_in(gateway, client, 1, "c") as one, session_in(gateway, client, 2, "d") as two:
        for session in (one, two):
            session.send(append_input(b"x"))
        assert gateway.terminate() == 0
        assert [session.ack().start.seq_num for session in (one, two)] == before
    assert all(map(gone, processes.values()))
