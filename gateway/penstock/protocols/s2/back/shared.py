"""Objects shared by the parts of one S2 back."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from penstock.protocols.s2.back.calls import Calls
from penstock.protocols.s2.back.configs import Configs
from penstock.protocols.s2.back.cuts import Cuts
from penstock.protocols.s2.back.locating import Locating
from penstock.protocols.s2.back.places import Places
from penstock.protocols.s2.back.settings import S2BackSettings
from penstock.protocols.s2.back.unary import Unary
from penstock.store.admission import Admission

__all__ = ["Shared"]


@dataclass(frozen=True, slots=True)
class Shared:
    """Shared objects of one server's back.

    `admission` bounds the appends of all its streams; `nursery` runs their writers.
    """

    calls: Calls
    unary: Unary
    configs: Configs
    places: Places
    cuts: Cuts
    locating: Locating
    settings: S2BackSettings
    admission: Admission
    nursery: trio.Nursery
