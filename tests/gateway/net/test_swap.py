"""Settings that are changed in place."""

from __future__ import annotations

import pytest

from penstock.net.listeners import take_over
from penstock_s2.front.settings import S2Settings
from penstock_s3p.front.settings import S3PSettings


def test_their_holders_see_the_new_values() -> None:
    held = S2Settings(default_basin="one")
    take_over(held, S2Settings(default_basin="another", compress=False))
    assert held == S2Settings(default_basin="another", compress=False)


def test_settings_of_another_kind_are_refused() -> None:
    with pytest.raises(TypeError, match="S3PSettings cannot take the place of S2Settings"):
        take_over(S2Settings(), S3PSettings())
