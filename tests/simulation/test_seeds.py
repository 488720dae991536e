"""The first seeds of the simulation; `make simulate` runs more. A failure names the seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulation.run import main
from simulation.simulation import Simulation

TESTS = Path(__file__).parents[1]
SEEDS = 100


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_seeds(first: int) -> None:
    for seed in range(first, first + 10):
        try:
            Simulation(seed).run()
        except Exception as error:
            error.add_note(f'again: make simulate ARGS="--seeds 1 --start {seed} --trace"')
            raise


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1000", "--start", str(SEEDS)]) == 0, capsys.readouterr().out


def test_a_seed_is_a_run() -> None:
    """Two runs have the same events, also in another process, whose sets and dicts have another order."""
    here = Simulation(7).run()
    assert here.power_losses and here.answered > 10
    assert Simulation(7).run().digest == here.digest
    assert Simulation(8).run().digest != here.digest
    program = "from simulation.simulation import Simulation; print(Simulation(7).run().digest)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == here.digest, done.stderr
