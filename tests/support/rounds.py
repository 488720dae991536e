"""Number of rounds of the tests that kill a gateway or a store under load."""

import pytest

__all__ = ["each_number_of_rounds"]

FEW = 3
MANY = 20

each_number_of_rounds = pytest.mark.parametrize("rounds", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
"""A test is given `rounds`: a few in `make test`, many in `make test-all`."""
