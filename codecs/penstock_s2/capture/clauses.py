"""Documents whose rules readers of bodies enforce; sections of the S2 fact sheet are given beside them."""

from __future__ import annotations

from typing import Final

__all__ = ["S2S_FRAMES", "S2S_SESSIONS", "S2_BODIES", "S2_EVENTS", "S2_MESSAGES", "S2_UNARY"]

S2S_FRAMES: Final = "S2 API v1, s2s.md (fact sheet, section 2.1)"
S2S_SESSIONS: Final = "S2 API v1, s2s.md (fact sheet, section 2.3)"
S2_MESSAGES: Final = "S2 API v1, s2.proto (fact sheet, section 4)"
S2_UNARY: Final = "S2 API v1, openapi.json (fact sheet, section 1.2)"
S2_BODIES: Final = "S2 API v1, openapi.json (fact sheet, sections 1.1 and 5.1)"
S2_EVENTS: Final = "S2 API v1, openapi.json (fact sheet, section 3)"
