"""Run many seeds: `python -m simulation.run --seeds 1000 --start 0`, with `tests` on the path.

In two of four seeds the whole gateway runs, with clients at its fronts, in the others its store alone; `--only` runs
the one or the other in all.

It prints each seed that fails with the command that runs it again, and ends with status 1 if there is one. A single
seed (`--seeds 1 --start SEED --trace`) prints all events of its run first.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any, Final

from simulation.simulation import NO_FAULTS, Report, Simulation

__all__ = ["main"]

MOST_UNDECIDED: Final = 0.01
"""Part of the runs whose check may be given up; more prove too little."""


def _attempt(seed: int, options: dict[str, Any]) -> tuple[Report, str]:
    """Run a seed; return its report, and the error if it failed."""
    simulation = Simulation(seed, **options)
    try:
        simulation.run()
    except Exception:
        return simulation.report, traceback.format_exc()
    return simulation.report, ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds that the arguments name; return the exit status."""
    parser = argparse.ArgumentParser(prog="simulation.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="number of runs")
    parser.add_argument("--start", type=int, default=0, help="first seed")
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 4))
    parser.add_argument("--without-faults", action="store_true", help="no failing calls, only losses of power")
    parser.add_argument("--trace", action="store_true", help="print all events; one process")
    parser.add_argument(
        "--only", choices=("store", "gateway"), help="the store alone, or the gateway with its fronts, for all seeds"
    )
    chosen = parser.parse_args(arguments)
    options = {
        "fates": NO_FAULTS if chosen.without_faults else None,
        "fronts": None if chosen.only is None else chosen.only == "gateway",
    }
    seeds = range(chosen.start, chosen.start + chosen.seeds)
    if chosen.trace:
        for seed in seeds:
            simulation = Simulation(seed, **options, wants_lines=True)
            try:
                simulation.run()
            finally:
                print(*simulation.report.lines or (), sep="\n")
        return 0
    more = f" --only {chosen.only}" if chosen.only else ""
    began = time.monotonic()
    bad, undecided, power_losses, failed_calls, disk_calls, answered, broken = 0, 0, 0, 0, 0, 0, 0
    with multiprocessing.get_context("spawn").Pool(chosen.processes) as pool:
        attempt = functools.partial(_attempt, options=options)
        for report, error in pool.imap_unordered(attempt, seeds, chunksize=8):
            power_losses += report.power_losses
            failed_calls += report.failed_calls
            disk_calls += report.disk_calls
            answered += report.answered
            broken += report.broken_connections
            undecided += report.undecided
            if error:
                bad += 1
                again = f'make simulate ARGS="--seeds 1 --start {report.seed} --trace{more}"'
                print(f"{error}\nseed {report.seed} failed; again: {again}")
    seconds = time.monotonic() - began
    print(
        f"{len(seeds)} seeds in {seconds:.0f} s, {len(seeds) / seconds:.1f} a second: {bad} failed, {undecided} could "
        f"not be decided; {answered} calls were answered, power was lost {power_losses} times, {broken} connections "
        f"were broken, and {failed_calls} of {disk_calls} calls of the disk failed"
    )
    return 1 if bad or undecided > len(seeds) * MOST_UNDECIDED else 0


if __name__ == "__main__":
    sys.exit(main())
