"""Lines about stages: at the end of each that was not short, and every few seconds of one that is long."""

from __future__ import annotations

from penstock_spark.running.progress import Stage, StageLines


class Stages:
    """A double of Spark's status, with a clock."""

    def __init__(self) -> None:
        self.known: dict[int, Stage] = {}
        self.running: list[int] = []
        self.time = 100.0

    def active(self) -> list[int]:
        return self.running

    def stage(self, number: int) -> Stage | None:
        return self.known.get(number)

    def __call__(self) -> float:
        return self.time


def test_lines() -> None:
    spark = Stages()
    lines = StageLines(spark, spark)

    def at(seconds: float, *stages: Stage) -> list[str]:
        spark.time = 100 + seconds
        spark.running = [stage.number for stage in stages]
        spark.known |= {stage.number: stage for stage in stages}
        return list(lines.look())

    assert at(0, Stage(3, "quality", 8, 0, 0), Stage(4, "usage", 1, 0, 0)) == []
    assert at(0.5, Stage(3, "quality", 8, 0, 0)) == []  # stage 4 was short
    spark.known[3] = Stage(3, "quality", 8, 5, 1_500_000)
    assert at(5, Stage(3, "quality", 8, 5, 1_500_000)) == [
        "quality, stage 3: 5 of 8 tasks in 5.0 s, 1,500,000 rows, 300,000 rows/s"
    ]
    assert at(9, Stage(3, "quality", 8, 6, 1_500_000)) == []
    spark.known[3] = Stage(3, "quality", 8, 8, 3_000_000)
    assert at(10) == ["quality, stage 3: 8 tasks in 10.0 s, 3,000,000 rows, 300,000 rows/s"]
    assert at(20) == []


def test_stages_that_read_nothing_or_are_forgotten() -> None:
    spark = Stages()
    lines = StageLines(spark, spark)
    spark.known[1] = Stage(1, "count", 2, 2, 0)
    spark.running = [1, 2]
    assert list(lines.look()) == []
    spark.time += 2
    spark.running = []
    assert list(lines.look()) == ["count, stage 1: 2 tasks in 2.0 s"]
