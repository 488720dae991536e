"""The first seeds of the simulation; `make simulate` runs more. A failure names the seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulation.run import main
from simulation.simulation import Simulation, has_fronts

TESTS = Path(__file__).parents[1]
SEEDS = 20


@pytest.mark.parametrize("first", [0, pytest.param(10, marks=pytest.mark.slow)])
def test_seeds(first: int) -> None:
    for seed in range(first, first + 10):
        try:
            assert not Simulation(seed).run().undecided
        except Exception as error:
            error.add_note(f'again: make simulate ARGS="--seeds 1 --start {seed} --trace"')
            raise


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "seeds", [pytest.param(200, marks=pytest.mark.slow), pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.long])]
)
def test_more_seeds(seeds: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", str(seeds), "--start", str(SEEDS)]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("seed", [pytest.param(24, id="store"), pytest.param(30, id="gateway", marks=pytest.mark.slow)])
def test_a_seed_is_a_run(seed: int) -> None:
    """Two runs have the same events, also in another process, whose sets and dicts have another order."""
    here = Simulation(seed).run()
    assert here.power_losses and here.answered > 10
    assert has_fronts(seed) == (here.broken_connections > 0)
    assert Simulation(seed).run().digest == here.digest
    assert Simulation(seed + 1).run().digest != here.digest
    program = f"from simulation.simulation import Simulation; print(Simulation({seed}).run().digest)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == here.digest, done.stderr
