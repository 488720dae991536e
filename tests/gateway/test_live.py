"""Settings that are changed in place."""

from __future__ import annotations

import pytest

from penstock.fronts.s2.settings import S2Settings
from penstock.fronts.s3p.settings import S3PSettings
from penstock.live import take_over


def test_whoever_holds_them_sees_the_new_values() -> None:
    held = S2Settings(default_basin="one")
    take_over(held, S2Settings(default_basin="another", cors=False))
    assert held == S2Settings(default_basin="another", cors=False)


def test_settings_of_another_kind_are_refused() -> None:
    with pytest.raises(TypeError, match="S3PSettings cannot take the place of S2Settings"):
        take_over(S2Settings(), S3PSettings())
