"""Ranges shared out among tasks, and records among streams in one micro-batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_spark.source.following import admit
from penstock_spark.source.partitions import MOST_PARTITIONS, RECORDS_PER_PARTITION, Range, plan_partitions

ranges = st.lists(st.tuples(st.integers(0, 10), st.integers(1, 5000)), max_size=20).map(
    lambda found: [Range(f"b/{index}", at, at + count) for index, (at, count) in enumerate(found)]
)


@given(ranges, st.none() | st.integers(1, 3000), st.integers(1, 40))
def test_every_record_is_read_once_and_in_order(
    wanted: list[Range], records_per_partition: int | None, min_partitions: int
) -> None:
    planned = plan_partitions(wanted, records_per_partition=records_per_partition, min_partitions=min_partitions)
    pieces = [piece for partition in planned for piece in partition.ranges]
    joined: list[Range] = []
    for piece in pieces:
        assert piece.start < piece.end
        if joined and joined[-1].stream == piece.stream:
            assert joined[-1].end == piece.start
            joined[-1] = joined[-1]._replace(end=piece.end)
        else:
            joined.append(piece)
    assert joined == wanted
    total = sum(one.records for one in wanted)
    assert len(planned) >= min(min_partitions, total)
    for partition in planned:
        assert sum(one.records for one in partition.ranges) <= (records_per_partition or total)


def test_there_are_few_partitions() -> None:
    def count(records: int) -> int:
        return len(
            plan_partitions(
                [Range("b/s", 0, records)],
                records_per_partition=None,
                min_partitions=1,
            )
        )

    assert count(0) == 1
    assert count(RECORDS_PER_PARTITION) == 1
    assert count(RECORDS_PER_PARTITION + 1) == 2
    assert count(10**12) == MOST_PARTITIONS


def test_small_streams_are_spread_over_a_few_tasks() -> None:
    """Each is asked for by itself, so that 200 one after the other would take longer than the records in them."""
    wanted = [Range(f"b/{index}", 0, 100) for index in range(200)]
    planned = plan_partitions(wanted, records_per_partition=None, min_partitions=1)
    assert [len(partition.ranges) for partition in planned] == [19] * 10 + [10]
    planned = plan_partitions(wanted, records_per_partition=None, min_partitions=4)
    assert [len(partition.ranges) for partition in planned] == [50] * 4
    many = [Range(f"b/{index}", 0, 100) for index in range(10_000)]
    assert len(plan_partitions(many, records_per_partition=None, min_partitions=1)) <= MOST_PARTITIONS + 1


# ---- admission -------------------------------------------------------------------------------------------------------


def shares(there: dict[str, int], read: dict[str, int], limit: int) -> dict[str, int]:
    """Return how many records each stream may read, of `there` records in all, of which `read` were."""
    reached = admit(read, there, limit)
    return {name: reached[name] - read[name] for name in read}


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(st.integers(0, 50), st.integers(0, 50))), st.integers(1, 200)
)
def test_all_that_may_be_read_is_shared_fairly(counts: dict[str, tuple[int, int]], limit: int) -> None:
    read = {name: behind for name, (behind, _) in counts.items()}
    there = {name: behind + left for name, (behind, left) in counts.items()}
    found = shares(there, read, limit)
    assert sum(found.values()) == min(limit, sum(left for _, left in counts.values()))
    for name, got in found.items():
        assert got <= counts[name][1]
        if got < counts[name][1]:  # a stream that gets less than it has gets about as much as any other
            assert all(got >= other - len(found) for other in found.values())


def test_the_others_turn_comes_where_there_are_more_streams_than_records() -> None:
    there = dict.fromkeys("abcdefg", 3)
    read = dict.fromkeys("abcdefg", 0)
    while read != there:
        for name, got in shares(there, read, 2).items():
            read[name] += got
        assert max(read.values()) - min(read.values()) <= 2
