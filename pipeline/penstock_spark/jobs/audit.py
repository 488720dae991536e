"""Job `audit`: prove that two protocols or backs give the same streams, or show where they differ.

Each record becomes a digest of what is compared; a stream's digests in their order become one. Equal digests are the
proof. Only streams that differ are compared record by record. Bodies are read once; 64 bytes of each are kept.

`paired` matches the streams of the two sides where protocols name them differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel
from pyspark.sql import functions as fn

from penstock.capture.dialogue.records import plain_stream
from penstock_spark.jobs.differing import alone_by_content, alone_by_position, differences_of
from penstock_spark.jobs.numbering import Extent, digested, extents, number_side
from penstock_spark.jobs.schemas import DIFFERENCES, VERDICTS, shaped
from penstock_spark.jobs.views import records_of
from penstock_spark.sink.marker import MARKER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["KINDS", "Audit", "audit", "last_part", "paired"]

KINDS: Final = ("lost", "added", "doubled", "reordered", "altered")
"""The kinds of differences."""
_ALSO: Final = ("timestamp", "seq_num")


def last_part(name: str) -> str:
    """Return the part of a name that all protocols share: S3P has `orders` where S2 has `basin/orders` and segments
    `scope/orders/0.#epoch.0`."""
    return plain_stream(name).rpartition("/")[2]


def paired(left: Iterable[str], right: Iterable[str], names: Mapping[str, str]) -> dict[str, str]:
    """Return names of the right by names of the left. `names`: given pairs; the rest are paired by equal names, then by
    equal last parts that only one stream of each side has. Raises ValueError for a given name that does not exist."""
    lefts, rights = set(left), set(right)
    for which, known, names_given in (("left", lefts, names.keys()), ("right", rights, names.values())):
        if unknown := sorted(set(names_given) - known):
            raise ValueError(f"the {which} has no stream {unknown[0]!r}")
    if len(set(names.values())) < len(names):
        raise ValueError("two streams of the left are mapped to the same stream of the right")
    pairs = dict(names)
    lefts -= pairs.keys()
    rights -= set(pairs.values())
    for spelling in (str, plain_stream, last_part):
        ones, others = _unique(lefts, spelling), _unique(rights, spelling)
        for short in ones.keys() & others.keys():
            pairs[ones[short]] = others[short]
            lefts.remove(ones[short])
            rights.remove(others[short])
    return pairs


def _unique(names: Iterable[str], spelling: Callable[[str], str]) -> dict[str, str]:
    """Return names by spelling, for spellings that only one name has."""
    by_spelling: dict[str, list[str]] = {}
    for name in names:
        by_spelling.setdefault(spelling(name), []).append(name)
    return {short: together[0] for short, together in by_spelling.items() if len(together) == 1}


@dataclass(frozen=True, slots=True)
class Audit:
    """`verdicts`: one row per stream (`VERDICTS`); `differences`: one per differing record (`DIFFERENCES`). Spark keeps
    both until `close`."""

    verdicts: DataFrame
    differences: DataFrame
    _kept: tuple[DataFrame, ...]

    def close(self) -> None:
        """Release the tables that Spark keeps; reading them again repeats the work."""
        for table in self._kept:
            table.unpersist()


def audit(
    left: DataFrame,
    right: DataFrame,
    *,
    names: Mapping[str, str] | None = None,
    also: Sequence[str] = (),
    by: str = "content",
    action: str | None = None,
    side: str | None = None,
    ignored_headers: Sequence[bytes] = (MARKER,),
) -> Audit:
    """Compare two tables of records, of streams or of captures.

    `names`: streams of the right by those of the left; the rest are paired by name, then by its last part, as in
    `penstock diff`. `also`: columns to compare besides body and headers, `timestamp` or `seq_num`. `by`: `content`
    aligns the records by their content, so that one lost record is one difference; `position` compares records with the
    same sequence number, which both sides need. `action`, `side`: the records of captures to use (`records_of`).
    `ignored_headers`: names of headers that are not compared; by default the sink's marker, since a copy that the sink
    made has one where its original has none, or another.

    Runs at the call: a row per stream comes to the driver, and both sides' digests are kept on the executors' disks,
    about 150 bytes per record. Raises ValueError for unsupported arguments.
    """
    _check(also, by)
    sides = [
        digested(records_of(table, action, side), also, ignored_headers).persist(StorageLevel.DISK_ONLY)
        for table in (left, right)
    ]
    stream_extents = [extents(table) for table in sides]
    if by == "position" and any(
        extent.order != "seq_num" for left_name in stream_extents for extent in left_name.values()
    ):
        raise ValueError("by position: some records have no sequence number; compare by content")
    pairs = paired(stream_extents[0], stream_extents[1], names or {})
    (first, *_), (second, *_) = views = [
        number_side(table, left_name) for table, left_name in zip(sides, stream_extents, strict=True)
    ]
    stream_extents, digests = [view.extents for view in views], [view.digests for view in views]
    # By position, streams that begin at different numbers differ, whatever their records are.
    unequal = {
        left_name: right_name
        for left_name, right_name in pairs.items()
        if digests[0][left_name] != digests[1][right_name]
        or (
            by == "position"
            and (
                stream_extents[0][left_name].base is None
                or stream_extents[0][left_name] != stream_extents[1][right_name]
            )
        )
    }
    kept = tuple(sides)
    if unequal:
        first = _only(first, stream_extents[0], {name: name for name in unequal})
        second = _only(second, stream_extents[1], {right_name: left_name for left_name, right_name in unequal.items()})
        align = alone_by_content if by == "content" else alone_by_position
        alone = align(first, second).persist(StorageLevel.DISK_ONLY)
        differences = shaped(differences_of(alone, first, also=also), DIFFERENCES)
        kept = (*kept, alone)
    else:
        differences = shaped(left.sparkSession.createDataFrame([], "stream string, kind string"), DIFFERENCES)
    differences = differences.persist(StorageLevel.DISK_ONLY)
    verdicts = _verdicts(differences, pairs, stream_extents, digests).persist(StorageLevel.DISK_ONLY)
    return Audit(verdicts, differences, (*kept, differences, verdicts))


def _check(also: Sequence[str], by: str) -> None:
    if by not in ("content", "position"):
        raise ValueError(f"by: expected content or position, got {by!r}")
    if unknown := sorted(set(also) - set(_ALSO)):
        raise ValueError(f"{unknown[0]!r} cannot be compared; expected one of {', '.join(_ALSO)}")


def _only(table: DataFrame, stream_extents: dict[str, Extent], names: Mapping[str, str]) -> DataFrame:
    """Return the streams of these names, renamed as on the left, with the numbers of their records."""
    rows = [(name, left, stream_extents[name].records) for name, left in names.items()]
    wanted = table.sparkSession.createDataFrame(rows, "stream string, left string, total bigint")
    return table.join(fn.broadcast(wanted), "stream").drop("stream").withColumnRenamed("left", "stream")


def _verdicts(
    differences: DataFrame,
    pairs: Mapping[str, str],
    stream_extents: Sequence[dict[str, Extent]],
    digests: Sequence[dict[str, str]],
) -> DataFrame:
    lefts, rights = stream_extents
    rows: list[tuple[str | int | None, ...]] = []
    for left_name in sorted(lefts):
        right_name = pairs.get(left_name)
        there = 0 if right_name is None else rights[right_name].records
        rows.append(
            (
                left_name,
                right_name,
                lefts[left_name].records,
                there,
                digests[0][left_name],
                digests[1].get(right_name or ""),
            )
        )
    for right_name in sorted(rights.keys() - set(pairs.values())):
        rows.append((right_name, right_name, 0, rights[right_name].records, None, digests[1][right_name]))
    spark = differences.sparkSession
    streams = spark.createDataFrame(
        rows,
        "stream string, right_stream string, left_records bigint, right_records bigint, left_digest string, "
        "right_digest string",
    )
    # A stream that only the right has may share its name with one of the left that is paired with another.
    kinds = differences.groupBy("stream").pivot("kind", list(KINDS)).count().withColumn("paired", fn.lit(True))
    paired_here = (fn.col("left_digest").isNotNull() & fn.col("right_digest").isNotNull()).alias("paired")
    counted = streams.select("*", paired_here).join(kinds, ["stream", "paired"], "left")
    only_left, only_right = fn.col("right_digest").isNull(), fn.col("left_digest").isNull()
    counts = {name: fn.coalesce(fn.col(name), fn.lit(0)) for name in KINDS}
    counts["lost"] = fn.when(only_left, fn.col("left_records")).otherwise(counts["lost"])
    counts["added"] = fn.when(only_right, fn.col("right_records")).otherwise(counts["added"])
    difference_count = fn.aggregate(
        fn.array(*(fn.col(name).cast("bigint") for name in KINDS)), fn.lit(0).cast("bigint"), _sum
    )
    verdict = (
        fn.when(only_left, "only left")
        .when(only_right, "only right")
        .when(difference_count > 0, "different")
        .otherwise("equal")
    )
    return shaped(counted.withColumns(counts).withColumn("verdict", verdict).orderBy("stream"), VERDICTS)


def _sum(left: Column, right: Column) -> Column:
    return left + right
