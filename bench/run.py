"""`make bench`: drives the gateway over loopback sockets beside redis-server streams and an haproxy relay.

    python bench/run.py [--quick] [--sizes 1024] [--connections 8] [--duties append,read] [--directory DIR]

Prints tables, and saves them with every single round under bench/results/. bench/README.md says how to read them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).parent))

from brokers import BROKER, FETCH, MEMBERS, PARTITIONS, PERFORMANCE, PRODUCE
from brokers import PENSTOCK as LISTENER
from duties import (
    ACK,
    ALWAYS,
    APPEND,
    DELIVERY,
    DISK,
    FULL,
    HAPROXY,
    QUICK,
    READ,
    S2S,
    SEGMENT_APPEND,
    SEGMENT_READ,
    Row,
    Scale,
)
from gateways import BEFORE_PRAVEGA, GATEWAYS, ONE, GatewaysBench
from kafka_client import KAFKA
from recordings import RECORD_APPEND, RECORD_READ, RECORDED
from relays import DIRECT, PENSTOCK, RELAY_ACK, RELAY_READ
from report import against, number, size_name, table
from s2_bench import OFFICIAL, S2_LITE, S2BenchBench
from s2_bench import PENSTOCK as OURS
from servers import Client
from small import FAN_OUT, HELD, IDLE, PROCESS, REQUESTS, SHARED, SPREAD, START, stored
from tables import CAPTURE, LOOP, SINK, SMALL_RUN, SOURCE, SPARK

RESULTS = Path(__file__).parent / "results"
SEGMENT, RELAY, RECORD, SMALL, PIPELINE = "segment", "relay", "record", "small", "pipeline"
SEVERAL = "gateways"
S2_BENCH = "s2bench"
DUTIES = (APPEND, READ, ACK, DELIVERY, SEGMENT, RELAY, RECORD, SMALL, IDLE, PIPELINE, KAFKA, SEVERAL, S2_BENCH)

SMALL_SIZE = 1024
"""Bytes of the largest records that the pipeline and Kafka are measured with."""
SMALL_THINGS_SIZE = 100
"""Bytes of the records of small things."""
OFFICIAL_SIZES = (1024, 8192)
"""Bytes of the records of `s2 bench`."""


def arguments() -> argparse.Namespace:
    """The command line."""

    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split(","))

    def duties(text: str) -> tuple[str, ...]:
        named = tuple(text.split(","))
        if unknown := set(named) - set(DUTIES):
            raise argparse.ArgumentTypeError(f"there is no duty {', '.join(sorted(unknown))}")
        return named

    parser = argparse.ArgumentParser(description="The benchmark of Penstock; see bench/README.md.")
    parser.add_argument("--quick", action="store_true", help="1 KiB records, short rounds: about six minutes")
    parser.add_argument("--sizes", type=numbers, help="body sizes in bytes, as 100,1024")
    parser.add_argument("--connections", type=numbers, help="as 1,8")
    parser.add_argument("--duties", type=duties, default=DUTIES, help=f"of {', '.join(DUTIES)}")
    parser.add_argument("--rounds", type=int, help="alternated rounds per case; medians are taken over them")
    parser.add_argument(
        "--directory", type=Path, default=RESULTS, help="directory for the servers' data during the run"
    )
    parser.add_argument(
        "--profile", type=Path, help="run the gateway with a sampler, and write its samples to this file"
    )
    return parser.parse_args()


def cases(
    bench: GatewaysBench, duties: Sequence[str], *, smallest: bool, middle: bool, small: bool
) -> list[Callable[[int, int], Iterator[Row]]]:
    """Return what to measure, in the order of DUTIES.

    The segment protocol is for small events: `smallest` size only. The cost of recording depends on bytes more than on
    records: `middle` size only. The pipeline is for `small` ones.
    """
    known = {
        APPEND: [bench.appends],
        READ: [bench.reads],
        ACK: [bench.acks],
        DELIVERY: [bench.deliveries],
        SEGMENT: [bench.segment_appends, bench.segment_reads] if smallest else [],
        RELAY: [bench.relay_reads, bench.relay_acks],
        RECORD: [bench.recorded] if middle else [],
        PIPELINE: [bench.tables] if small else [],
    }
    return [one for duty in DUTIES if duty in duties for one in known.get(duty, ())]


def small_things(bench: GatewaysBench, scale: Scale, directory: Path) -> Iterator[Iterator[Row]]:
    """Return what to measure of streams, requests, deliveries, and the start."""
    for streams in scale.streams:
        yield bench.spread_appends(SMALL_THINGS_SIZE, streams)
    for connections in scale.connections:
        yield bench.requests(SMALL_THINGS_SIZE, connections)
    for followers in scale.followers:
        yield bench.fan_outs(SMALL_THINGS_SIZE, followers)
    yield bench.starts(directory)


def measure(
    scale: Scale, duties: Sequence[str], scratch: Path, say: Callable[[str], None], gateway: tuple[str, ...]
) -> list[Row]:
    """All rows. Each size gets servers of its own, whose data goes as soon as it is done."""
    rows: list[Row] = []
    with Client() as client:
        for size in scale.sizes:
            directory = scratch / str(size)
            directory.mkdir()
            with S2BenchBench(scale, directory, client, say, gateway) as bench:
                middle = sorted(scale.sizes)[len(scale.sizes) // 2]
                smallest = size == min(scale.sizes)
                for duty in cases(bench, duties, smallest=smallest, middle=size == middle, small=size <= SMALL_SIZE):
                    for connections in scale.connections:
                        rows += duty(size, connections)
                        say(f"{rows[-1].duty}, {size_name(size)}, {connections} connections")
                if SMALL in duties and smallest:
                    for some in small_things(bench, scale, directory):
                        rows += some
                        say(f"{rows[-1].duty}, {rows[-1].connections}")
                if IDLE in duties and smallest:
                    rows += bench.idle(SMALL_THINGS_SIZE)
                    say(f"{IDLE}, {HELD}")
                if KAFKA in duties and size <= SMALL_SIZE:
                    rows += bench.kafka(size)
                    say(f"{KAFKA}, {size_name(size)}")
                if SEVERAL in duties and size <= SMALL_SIZE:
                    rows += bench.gateways(size)
                    say(f"{SEVERAL}, {size_name(size)}")
                if S2_BENCH in duties and smallest:
                    for official in OFFICIAL_SIZES:
                        rows += bench.official(official)
                        say(f"{OFFICIAL}, {size_name(official)}")
            shutil.rmtree(directory)
    return rows


def group(rows: Sequence[Row], duty: str) -> Iterator[tuple[str, list[Row]]]:
    """The rows of a duty, case by case."""
    cases_ = dict.fromkeys((row.size, row.connections) for row in rows if row.duty == duty)
    for size, connections in cases_:
        name = f"{size_name(size)} x {connections}"
        yield name, [r for r in rows if (r.duty, r.size, r.connections) == (duty, size, connections)]


def rate_table(rows: Sequence[Row], duty: str, base: str, *, whose: str = "server", unit: str = "record") -> str:
    """Processor time with its spread over the rounds, and throughput, with the ratios of both to `base`.

    `whose` time that is, for which `unit`.
    """
    lines = []
    for case, some in group(rows, duty):
        rates = {row.candidate: row.figures["records_s"] for row in some}
        costs = {row.candidate: row.figures["cpu_us"] for row in some}
        for row in some:
            cost, rate, volume = (row.figures[key] for key in ("cpu_us", "records_s", "mb_s"))
            per_gb = number(cost / volume * rate / 1000) if volume else "-"
            ratios = (against(costs, row.candidate, base), against(rates, row.candidate, base))
            figures = (number(cost), spread(row, "cpu_us"), ratios[0], per_gb, number(rate), ratios[1], number(volume))
            lines.append((case, row.candidate, *figures))
    head = ("case", "candidate", f"{whose} CPU us/{unit}", "of rounds", f"CPU / {base}", "CPU s/GB")
    return table((*head, f"{unit}s/s", f"rate / {base}", "body MB/s"), lines)


def spread(row: Row, figure: str) -> str:
    """The least and the greatest of the rounds."""
    found = [one[figure] for one in row.rounds]
    return f"{number(min(found))} .. {number(max(found))}"


def fan_out_table(rows: Sequence[Row], duty: str) -> str:
    """Processor time of a delivery, and percentiles, by number of followers."""
    lines = []
    for case, some in group(rows, duty):
        costs = {row.candidate: row.figures["cpu_us"] for row in some}
        for row in some:
            cost, p50, p99 = (row.figures[key] for key in ("cpu_us", "p50_ms", "p99_ms"))
            ratio = against(costs, row.candidate, ALWAYS)
            lines.append((case, row.candidate, number(cost), spread(row, "cpu_us"), ratio, number(p50), number(p99)))
    return table(
        ("case", "candidate", "server CPU us/delivery", "of rounds", f"CPU / {ALWAYS}", "p50 ms", "p99 ms"), lines
    )


def idle_table(rows: Sequence[Row], duty: str) -> str:
    """Memory of each follower or connection, and the processor time of all."""
    lines = [
        (f"{row.connections:,}", row.candidate, number(row.figures["kib"]), number(row.figures["core_percent"]))
        for row in rows
        if row.duty == duty
    ]
    return table(("number", "waiting", "KiB each", "% of a core, all"), lines)


def start_table(rows: Sequence[Row], duty: str) -> str:
    """Processor time until a server listens, and the time."""
    lines = [
        (row.candidate, number(row.figures["cpu_s"]), spread(row, "cpu_s"), number(row.figures["seconds"]))
        for row in rows
        if row.duty == duty
    ]
    return table(("server", "CPU s", "of rounds", "s"), lines)


def official_table(rows: Sequence[Row], duty: str) -> str:
    """The figures of `s2 bench`, with their ratios to those of S2's own server."""
    lines = []
    names = ("write_mib", "catch_up_mib", "ack_p99_ms", "delivery_p99_ms", "cpu_us", "memory_mib")
    for case, some in group(rows, duty):
        for row in some:
            cells = []
            for name in names:
                found = {one.candidate: one.figures[name] for one in some}
                cells.append(f"{number(row.figures[name])} ({against(found, row.candidate, S2_LITE)})")
            lines.append((case, row.candidate, *cells, spread(row, "write_mib")))
    head = ("write MiB/s", "catch-up MiB/s", "ack p99 ms", "delivery p99 ms", "server CPU us/record", "memory MiB")
    return table(("case", "server", *head, "write, of rounds"), lines)


def latency_table(rows: Sequence[Row], duty: str) -> str:
    """Percentiles, and what the median has beyond one fdatasync of the same case where that was measured."""
    lines = []
    for case, some in group(rows, duty):
        medians = {row.candidate: row.figures["p50_ms"] for row in some}
        for row in some:
            p50, p99, samples = (row.figures[key] for key in ("p50_ms", "p99_ms", "samples"))
            beyond = number(p50 - medians[DISK]) if DISK in medians else "-"
            ratio = against(medians, row.candidate, ALWAYS)
            lines.append((case, row.candidate, number(p50), number(p99), beyond, ratio, f"{samples:.0f}"))
    head = ("case", "candidate", "p50 ms", "p99 ms", "p50 - fdatasync ms", f"p50 / {ALWAYS}", "samples")
    return table(head, lines)


def added_table(rows: Sequence[Row], duty: str) -> str:
    """Percentiles, and what they have beyond those of the way without a relay."""
    lines = []
    for case, some in group(rows, duty):
        direct = next(row.figures for row in some if row.candidate == DIRECT)
        for row in some:
            p50, p99, samples = (row.figures[key] for key in ("p50_ms", "p99_ms", "samples"))
            added = [number(row.figures[key] - direct[key]) for key in ("p50_ms", "p99_ms")]
            if row.figures is direct:
                added = ["-", "-"]
            lines.append((case, row.candidate, number(p50), number(p99), *added, f"{samples:.0f}"))
    head = ("case", "candidate", "p50 ms", "p99 ms", "p50 - direct ms", "p99 - direct ms", "samples")
    return table(head, lines)


def record_table(rows: Sequence[Row], duty: str) -> str:
    """Rates with and without recording, and the ratios of the rounds, each of which is a pair."""
    lines = []
    for case, some in group(rows, duty):
        found = {row.candidate: row for row in some}
        for name, plain in found.items():
            recorded = found.get(name + RECORDED)
            if recorded is not None:
                rates = (plain.figures["records_s"], recorded.figures["records_s"], recorded.figures["mb_s"])
                low, middle, high = ratios(plain, recorded, "records_s")
                cpu = ratios(plain, recorded, "cpu_us")[1]
                dropped = max(one["dropped"] for one in recorded.rounds)
                spread = f"{low:.2f} .. {high:.2f}"
                lines.append((case, name, *map(number, rates), f"{middle:.2f}", spread, f"{cpu:.2f}", f"{dropped:.0f}"))
    head = ("case", "candidate", "records/s", "recorded", "MB/s", "ratio", "of rounds", "CPU ratio", "dropped")
    return table(head, lines)


def ratios(plain: Row, recorded: Row, figure: str) -> tuple[float, float, float]:
    """The least, the median and the greatest of the rounds."""
    found = [two[figure] / one[figure] for one, two in zip(plain.rounds, recorded.rounds, strict=True)]
    return min(found), statistics.median(found), max(found)


def targets(rows: Sequence[Row]) -> str:
    """The figures to work towards, with what this run shows."""
    found = {(row.duty, row.size, row.connections, row.candidate): row.figures for row in rows}

    def figure(duty: str, size: int, connections: int, candidate: str, name: str) -> float | None:
        return found.get((duty, size, connections, candidate), {}).get(name)

    def ratio(name: str, duty: str, size: int, connections: int, ours: str, base: str) -> float | None:
        pair = [figure(duty, size, connections, one, name) for one in (ours, base)]
        return pair[0] / pair[1] if all(pair) else None

    def beyond(duty: str, connections: int, candidate: str, base: str) -> float | None:
        pair = [figure(duty, 1024, connections, one, "p50_ms") for one in (candidate, base)]
        return pair[0] - pair[1] if None not in pair else None

    def recorded(duty: str, candidate: str) -> float | None:
        """The worst of the cases."""
        here = [row for row in rows if row.duty == duty]
        plain = {(row.size, row.connections): row for row in here if row.candidate == candidate}
        pairs = [row for row in here if row.candidate == candidate + RECORDED]
        return min((ratios(plain[row.size, row.connections], row, "records_s")[1] for row in pairs), default=None)

    def of_streams(candidate: str) -> float | None:
        pair = [figure(SPREAD, SMALL_THINGS_SIZE, streams, candidate, "records_s") for streams in (10_000, 100)]
        return pair[0] / pair[1] if all(pair) else None

    cpu, rate = "cpu_us", "records_s"
    h1, h2 = "S2S h1", "S2S h2"
    asked: list[tuple[str, float | None, str]] = [
        ("append 1 KiB x 100, 8 connections: S2S h2 / redis always", ratio(rate, APPEND, 1024, 8, h2, ALWAYS), ">= 1"),
        ("the same, CPU", ratio(cpu, APPEND, 1024, 8, h2, ALWAYS), "<= 1.2"),
    ]
    for connections in (1, 8):
        case = (READ, 1024, connections)
        asked += [
            (f"catch-up 1 KiB x {connections}: S2S h1 / haproxy relay", ratio(rate, *case, h1, HAPROXY), ">= 0.9"),
            ("the same, CPU", ratio(cpu, *case, h1, HAPROXY), "<= 0.8"),
            (f"catch-up 1 KiB x {connections}: CPU, S2S h2 / haproxy relay", ratio(cpu, *case, h2, HAPROXY), "<= 1.5"),
            (f"catch-up 1 KiB x {connections}: CPU, SSE / haproxy relay", ratio(cpu, *case, "SSE", HAPROXY), "<= 2.5"),
        ]
    for connections in (1, 8):
        case = (RELAY_READ, 1024, connections)
        asked += [
            (f"relay, 1 MiB x {connections}: CPU, Penstock / haproxy", ratio(cpu, *case, PENSTOCK, HAPROXY), "<= 0.8"),
            (f"relay ack x {connections}: added, p50, ms", beyond(RELAY_ACK, connections, PENSTOCK, DIRECT), "< 0.3"),
        ]
    for size in OFFICIAL_SIZES:
        case = (OFFICIAL, size, 1, OURS, S2_LITE)
        name = f"`s2 bench`, {size_name(size)}: Penstock / s2 lite"
        asked += [
            (f"{name}, write", ratio("write_mib", *case), "> 1"),
            (f"{name}, catch-up", ratio("catch_up_mib", *case), "> 1"),
            (f"{name}, p99 of acks", ratio("ack_p99_ms", *case), "< 1"),
        ]
    asked += [
        (
            f"`{PERFORMANCE}`, {size_name(size)}, {partitions} partitions: CPU, Penstock / Apache Kafka",
            ratio(cpu, PERFORMANCE, size, partitions, LISTENER, BROKER),
            "<= 2",
        )
        for size in (100, 1024)
        for partitions in PARTITIONS
    ]
    asked += [
        (f"catch-up 100 B x 1: CPU, {name} / redis XRANGE", ratio(cpu, READ, 100, 1, name, "redis"), bound)
        for name, bound in ((h1, "<= 1"), ("SSE", "<= 2"), ("S3P", "<= 2"))
    ]
    asked += [
        ("appends, 10,000 streams / 100 streams, S2S h2", of_streams(h2), ">= 0.8"),
        ("appends, 10,000 streams / 100 streams, S3P", of_streams("S3P"), ">= 0.8"),
    ]
    asked += [
        (
            f"unary {kind}, 8 connections: Penstock / {peer}",
            ratio(rate, REQUESTS, SMALL_THINGS_SIZE, 8, kind, peer),
            ">= 1",
        )
        for kind in ("append", "read")
        for peer in ("uvicorn h11", stored(kind))
    ]
    asked += [
        ("ack p50 - fdatasync, 1 KiB, S2S h1, 1 connection, ms", beyond(ACK, 1, h1, DISK), "<= 2"),
        ("ack p50 - fdatasync, 1 KiB, S2S h1, 8 connections, ms", beyond(ACK, 8, h1, DISK), "<= 2"),
        ("append -> delivery p99, 1 KiB, S2S h1, 1 pair, ms", figure(DELIVERY, 1024, 1, h1, "p99_ms"), "< 10"),
        ("append -> delivery p99, 1 KiB, S2S h1, 8 pairs, ms", figure(DELIVERY, 1024, 8, h1, "p99_ms"), "< 10"),
    ]
    asked += [
        (f"{what}, {name}: recorded / not recorded, worst case", recorded(duty, name), ">= 0.9")
        for what, duty in (("append", RECORD_APPEND), ("catch-up", RECORD_READ))
        for name in (h1, h2, "S3P")
    ]
    asked += [
        ("idle follower, SSE, KiB", figure(IDLE, SMALL_THINGS_SIZE, HELD, "SSE", "kib"), "<= 15"),
        (
            "idle follower, S2S h2, shared connection, KiB",
            figure(IDLE, SMALL_THINGS_SIZE, HELD, SHARED, "kib"),
            "<= 10",
        ),
        (
            "heartbeats of 1,000 followers, SSE, % of a core",
            figure(IDLE, SMALL_THINGS_SIZE, HELD, "SSE", "core_percent"),
            "<= 0.3",
        ),
        ("start to ready, CPU s", figure(START, 0, 0, PROCESS, "cpu_s"), "<= 0.6"),
        ("spark source, 100 B: Spark / loop", ratio(rate, SOURCE, 100, 1, SPARK, LOOP), ">= 0.5"),
        ("spark source, 1 KiB: Spark / loop", ratio(rate, SOURCE, 1024, 1, SPARK, LOOP), ">= 0.5"),
        (
            "`penstock pipeline run` on 90 records, CPU s of all processes",
            next((row.figures["cpu_s"] for row in rows if row.duty == SMALL_RUN), None),
            "< 30",
        ),
    ]
    lines = []
    for name, value, wanted in asked:
        relation, _, bound = wanted.partition(" ")
        if value is None:
            lines.append((name, wanted, "-", "not measured"))
            continue
        met = {
            ">=": value >= float(bound),
            "<=": value <= float(bound),
            "<": value < float(bound),
            ">": value > float(bound),
        }[relation]
        lines.append((name, wanted, number(value), "yes" if met else "no"))
    return table(("target", "wanted", "measured", "met"), lines)


def report(rows: Sequence[Row], seconds: float) -> str:
    """The whole text."""
    machine = f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    parts = [
        f"# Penstock benchmark, {time.strftime('%Y-%m-%d %H:%M')}",
        f"{machine}; load {os.getloadavg()[0]:.1f} at the end; {seconds:.0f} s in all.",
    ]
    titles = (
        (APPEND, "Durable appends in batches", lambda: rate_table(rows, APPEND, ALWAYS)),
        (READ, "Catch-up reads", lambda: rate_table(rows, READ, HAPROXY)),
        (
            ACK,
            "Append to acknowledgement, one record in flight per connection",
            lambda: latency_table(rows, ACK),
        ),
        (DELIVERY, "Append to delivery, 250 records a second", lambda: latency_table(rows, DELIVERY)),
        (SEGMENT_APPEND, "Durable appends in blocks of 1 MiB", lambda: rate_table(rows, SEGMENT_APPEND, S2S)),
        (SEGMENT_READ, "Catch-up reads of 1 MiB each", lambda: rate_table(rows, SEGMENT_READ, S2S)),
        (RELAY_READ, "S2S relayed, batches of up to 1 MiB", lambda: rate_table(rows, RELAY_READ, HAPROXY)),
        (RELAY_ACK, "Append to acknowledgement through a relay", lambda: added_table(rows, RELAY_ACK)),
        (RECORD_APPEND, "Durable appends while all is recorded", lambda: record_table(rows, RECORD_APPEND)),
        (RECORD_READ, "Catch-up reads while all is recorded", lambda: record_table(rows, RECORD_READ)),
        (SPREAD, "Durable appends of single records to many streams", lambda: rate_table(rows, SPREAD, ALWAYS)),
        (
            REQUESTS,
            "Requests of one record over HTTP/1.1",
            lambda: rate_table(rows, REQUESTS, "uvicorn h11", unit="request"),
        ),
        (FAN_OUT, "One stream, many followers", lambda: fan_out_table(rows, FAN_OUT)),
        (IDLE, "What waits", lambda: idle_table(rows, IDLE)),
        (START, "From the start to listening", lambda: start_table(rows, START)),
        (PRODUCE, "Kafka's producers, acks of all replicas", lambda: rate_table(rows, PRODUCE, BROKER)),
        (PERFORMANCE, f"`{PERFORMANCE}`, by partitions", lambda: rate_table(rows, PERFORMANCE, BROKER)),
        (FETCH, "Kafka's consumers, from the first record to the last", lambda: rate_table(rows, FETCH, BROKER)),
        (MEMBERS, "Members of consumer groups that wait", lambda: idle_table(rows, MEMBERS)),
        (OFFICIAL, "`s2 bench`, in brackets as parts of s2 lite's", lambda: official_table(rows, OFFICIAL)),
        (
            GATEWAYS,
            "Several gateways before one broker of Kafka",
            lambda: rate_table(rows, GATEWAYS, ONE, whose="gateways'"),
        ),
        (
            BEFORE_PRAVEGA,
            "Several gateways before Pravega",
            lambda: rate_table(rows, BEFORE_PRAVEGA, ONE, whose="gateways'"),
        ),
    )
    spark = (
        (SOURCE, "Streams as tables of Spark, one core"),
        (SINK, "Tables of Spark into streams, one core"),
        (CAPTURE, "Records of captures as tables of Spark, one core"),
    )
    titles += tuple((duty, title, lambda d=duty: rate_table(rows, d, LOOP, whose="client")) for duty, title in spark)
    for duty, title, text in titles:
        if any(row.duty == duty for row in rows):
            parts.append(f"## {title}\n\n{text()}")
    parts.append(f"## Targets\n\n{targets(rows)}")
    return "\n\n".join(parts) + "\n"


def stop(number: int, _frame: object) -> NoReturn:
    """End the run on a signal: stop the servers and remove their data, which another signal does not interrupt."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> None:
    options = arguments()
    scale = QUICK if options.quick else FULL
    changes = {name: getattr(options, name) for name in ("sizes", "connections", "rounds") if getattr(options, name)}
    scale = dataclasses.replace(scale, **changes)
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begin:5.0f} s] {text}", file=sys.stderr, flush=True)

    command = (sys.executable, "-m", "penstock")
    if options.profile:
        command = (sys.executable, str(RESULTS.parent / "sampling.py"), str(options.profile.resolve()))
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, stop)
    RESULTS.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=options.directory))
    try:
        rows = measure(scale, options.duties, scratch, say, command)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    text = report(rows, time.monotonic() - begin)
    name = time.strftime("%Y%m%d-%H%M%S")
    (RESULTS / f"{name}.md").write_text(text)
    raw = [dataclasses.asdict(row) for row in rows]
    (RESULTS / f"{name}.json").write_text(json.dumps(raw, indent=1))
    print(text)
    print(f"Saved as {RESULTS.name}/{name}.md and .json", file=sys.stderr)


if __name__ == "__main__":
    main()
