"""Run many seeds: `python -m simulation.run --seeds 1000 --start 0`, with `tests` on the path.

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

from simulation.simulation import NO_FAULTS, Report, Simulation

__all__ = ["main"]


def _attempt(seed: int, without_faults: bool) -> tuple[Report, str]:
    """Run a seed; return its report, and the error if it failed."""
    simulation = Simulation(seed, NO_FAULTS if without_faults else None)
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
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.start, chosen.start + chosen.seeds)
    if chosen.trace:
        for seed in seeds:
            simulation = Simulation(seed, NO_FAULTS if chosen.without_faults else None, wants_lines=True)
            try:
                simulation.run()
            finally:
                print(*simulation.report.lines or (), sep="\n")
        return 0
    began = time.monotonic()
    bad, power_losses, failed_calls, disk_calls, answered = 0, 0, 0, 0, 0
    with multiprocessing.get_context("spawn").Pool(chosen.processes) as pool:
        attempt = functools.partial(_attempt, without_faults=chosen.without_faults)
        for report, error in pool.imap_unordered(attempt, seeds, chunksize=8):
            power_losses += report.power_losses
            failed_calls += report.failed_calls
            disk_calls += report.disk_calls
            answered += report.answered
            if error:
                bad += 1
                again = f'make simulate ARGS="--seeds 1 --start {report.seed} --trace"'
                print(f"{error}\nseed {report.seed} failed; again: {again}")
    print(
        f"{len(seeds)} seeds in {time.monotonic() - began:.0f} s: {bad} failed; {answered} calls were answered, "
        f"power was lost {power_losses} times, and {failed_calls} of {disk_calls} calls of the disk failed"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
