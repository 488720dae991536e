"""Loads of tests under load: one that goes wrong is named, and one that finds no server tries again."""

from __future__ import annotations

import pytest
from support.bridges.load import Load, Lost, Stopping, serving_broker

from penstock_kafka.codec.cluster_messages import MetadataBroker, MetadataResponse


def test_the_failure_of_one_load_is_told_to_a_test_that_waits_for_another() -> None:
    """It stops all of them: none of the others is to blame for it."""

    def fails(load: Load) -> None:
        raise ValueError("oh")

    stopping = Stopping()
    one, other = (Load(None, name, "s", stopping=stopping) for name in ("one", "other"))  # type: ignore[arg-type]
    threads = [one.run(lambda load: load.stopping.wait()), other.run(fails)]
    for thread in threads:
        thread.join(10)
    for load in (one, other):
        with pytest.raises(AssertionError, match=r"other of s: ValueError\('oh'\)"):
            load.wait_for_more(1, 0.1)
    assert one.failure is None


def test_a_kafka_client_that_finds_no_leader_tries_again() -> None:
    """The gateway that served the clients was killed, and its successor has not taken over yet."""
    broker = MetadataBroker(node_id=7, host="localhost", port=1)
    assert serving_broker(MetadataResponse(brokers=[broker], controller_id=7, topics=[])) == broker
    with pytest.raises(Lost):
        serving_broker(MetadataResponse(brokers=[broker], controller_id=-1, topics=[]))
