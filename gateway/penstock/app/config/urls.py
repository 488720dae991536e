"""Masks secrets in the URLs of a configuration."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MASKED", "without_secrets"]

MASKED: Final = "(masked)"
"""Replacement of a secret in output."""
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)
_SECRET: Final = re.compile(r"(?<=://)[^/?#@]*(?=@)|(?<=[?]).*", re.DOTALL)
"""Possible secrets: user and password, and the query, which has the key of some collectors."""


def without_secrets(text: str) -> str:
    """Return a configured value; if it is a URL, with its possible secrets masked."""
    return _SECRET.sub(MASKED, text) if _WEB.match(text) else text
