"""What the parts of one S2 back have in common."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from penstock.backs.s2.calls import Calls
from penstock.backs.s2.configs import Configs
from penstock.backs.s2.cuts import Cuts
from penstock.backs.s2.locating import Locating
from penstock.backs.s2.places import Places
from penstock.backs.s2.settings import S2BackSettings
from penstock.backs.s2.unary import Unary
from penstock.store.admission import Admission

__all__ = ["Shared"]


@dataclass(frozen=True, slots=True)
class Shared:
    """One server. `admission` bounds the appends of all its streams; `nursery` is where they are sent."""

    calls: Calls
    unary: Unary
    configs: Configs
    places: Places
    cuts: Cuts
    locating: Locating
    settings: S2BackSettings
    admission: Admission
    nursery: trio.Nursery
