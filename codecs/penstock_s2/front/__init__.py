"""The S2 front: the S2 API (REST, S2S sessions, server-sent events) over any back."""

from penstock_s2.front.front import S2Front
from penstock_s2.front.settings import S2Settings

__all__ = ["S2Front", "S2Settings"]
