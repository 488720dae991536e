"""Topics and streams."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Located
from penstock.model.records import StreamRef
from penstock_kafka.names import KafkaNames, TopicPartition, topics_of
from penstock_kafka.terms import KafkaTerms
from penstock_pravega.segment.names import SegmentName

NAMES = KafkaNames("penstock")
INTERNAL = KafkaNames("penstock", "state.internal.")
PARTS = st.text("ab-_.s", min_size=1, max_size=8).filter(lambda part: part not in (".", ".."))
SUFFIXES = st.sampled_from(["", "#transaction." + "0a" * 16, "#transient.1"])
SEGMENTS = st.builds(SegmentName, PARTS, PARTS, st.integers(0, 9), st.integers(0, 9), SUFFIXES)


@pytest.mark.parametrize(
    ("stream", "partition"),
    [
        ("orders", TopicPartition("orders", 0, whole=True)),
        ("a.b-C_9", TopicPartition("a.b-C_9", 0, whole=True)),
        ("orders/0", TopicPartition("orders", 0, whole=False)),
        ("orders/17", TopicPartition("orders", 17, whole=False)),
    ],
)
def test_each_partition_is_a_stream(stream: str, partition: TopicPartition) -> None:
    ref = StreamRef("penstock", stream)
    assert NAMES.from_stream(ref) == partition
    named = NAMES.to_stream(partition.topic) if partition.whole else NAMES.member(partition.topic, partition.partition)
    assert named == ref


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a b", "ä", "x" * 250])
def test_a_name_that_no_topic_has_is_refused(topic: str) -> None:
    for named in (NAMES.to_stream, lambda name: NAMES.member(name, 1)):
        with pytest.raises(OperationFailed, match="a topic is named by") as failed:
            named(topic)
        assert failed.value.failure.code is FailureCode.BAD_PATH


@pytest.mark.parametrize("stream", ["a b", "a/b", "a/01", "a/-1", "a/1/2", "../1", ".", "x" * 250])
def test_a_stream_that_is_no_topic_is_refused(stream: str) -> None:
    with pytest.raises(OperationFailed, match="is no topic"):
        NAMES.from_stream(StreamRef("penstock", stream))


def test_streams_of_other_basins_are_no_topics() -> None:
    with pytest.raises(OperationFailed, match="those are in basin penstock"):
        NAMES.from_stream(StreamRef("another-basin", "orders"))


async def test_topics_are_found_among_streams() -> None:
    streams = ["b", "a/1", "a/0", "gap/0", "gap/2", "late/1", "both", "both/0", "no topic", "x/y", "b/", "..", "c/0/d"]
    assert await topics_of(streams) == {"a": 2, "b": 1, "both": 1, "gap": 1}


def test_clients_read_on_from_a_position_by_topic_partition_and_offset() -> None:
    terms, located = KafkaTerms(NAMES), Located(7, 5, None, at_tail=False)
    assert terms.to_stream("orders/2") == StreamRef("penstock", "orders/2")
    assert terms.name_of(StreamRef("penstock", "orders/2")) == "orders/2"
    hints = terms.hints(StreamRef("penstock", "orders/2"), located)
    assert hints == {"kafka": {"topic": "orders", "partition": 2, "offset": 7}}
    assert terms.hints(StreamRef("penstock", "no topic"), located) == {}


@example([SegmentName("a.b", "c"), SegmentName("a_b", "c")])
@given(st.lists(SEGMENTS, min_size=2, max_size=2, unique_by=str))
def test_internal_streams_have_topics_of_their_own(segments: list[SegmentName]) -> None:
    """Also for Kafka, which takes dots and underscores for the same."""
    refs = [StreamRef(INTERNAL_BASIN, str(segment)) for segment in segments]
    topics = [INTERNAL.from_stream(ref) for ref in refs]
    assert all(one.whole and one.partition == 0 for one in topics)
    assert [INTERNAL.internal_stream(one.topic) for one in topics] == [ref.stream for ref in refs]
    assert len({one.topic.replace(".", "_") for one in topics}) == 2


def test_an_internal_stream_whose_topic_would_have_too_long_a_name_is_refused() -> None:
    with pytest.raises(OperationFailed, match="with more than 249 letters"):
        INTERNAL.from_stream(StreamRef(INTERNAL_BASIN, f"scope/{'s' * 240}/0.#epoch.0"))


def test_other_topics_are_no_internal_streams() -> None:
    assert INTERNAL.internal_stream("orders") is None
    assert NAMES.internal_stream("state.internal.a") is None
    with pytest.raises(OperationFailed, match="is no topic"):
        NAMES.from_stream(StreamRef(INTERNAL_BASIN, "scope/stream/0.#epoch.0"))
