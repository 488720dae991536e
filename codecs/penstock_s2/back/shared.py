"""Objects shared by the parts of one S2 back."""

from __future__ import annotations

import msgspec
import trio

from penstock.backends.trim_points import TrimPoints
from penstock.store.admission import ByteBudget
from penstock_s2.back.calls import S2Requests
from penstock_s2.back.configs import Configs
from penstock_s2.back.locating import Locating
from penstock_s2.back.places import PlaceCache
from penstock_s2.back.settings import S2BackSettings
from penstock_s2.back.unary import UnaryRequests

__all__ = ["Shared"]


class Shared(msgspec.Struct, frozen=True):
    """Shared objects of one server's back.

    `admission` bounds the appends of all its streams; `nursery` runs their writers.
    """

    calls: S2Requests
    unary: UnaryRequests
    configs: Configs
    places: PlaceCache
    cuts: TrimPoints
    locating: Locating
    settings: S2BackSettings
    admission: ByteBudget
    nursery: trio.Nursery
