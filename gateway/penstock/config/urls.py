"""URLs in a configuration, for eyes that need not see its secrets."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MASKED", "without_secrets"]

MASKED: Final = "(masked)"
"""What is shown in the place of a secret."""
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)
_SECRET: Final = re.compile(r"(?<=://)[^/?#@]*(?=@)|(?<=[?]).*", re.DOTALL)
"""What may be one: user and password, and the query, which has the key of some collectors."""


def without_secrets(text: str) -> str:
    """What a configuration says; of a URL without what may be secret."""
    return _SECRET.sub(MASKED, text) if _WEB.match(text) else text
