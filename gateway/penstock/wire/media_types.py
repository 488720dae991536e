"""Media types in the headers of HTTP (RFC 9110, 8.3.1)."""

from __future__ import annotations

import re
from typing import Final

from penstock.model.failures import FailureCode, fail

__all__ = ["DEFAULT_TYPE", "essence"]

DEFAULT_TYPE: Final = "application/octet-stream"
"""The type of bytes without a known one."""
_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_TYPE: Final = re.compile(rf"({_TOKEN}/{_TOKEN})[ \t]*(;[\t -~]*)?")


def essence(content_type: str) -> str:
    """Return the type and subtype in lower case (RFC 9110, 8.3.1). Raises BAD_HEADER if it is not a content type."""
    if (match := _TYPE.fullmatch(content_type.strip())) is None:
        raise fail(FailureCode.BAD_HEADER, f"content-type: {content_type!r:.80} is not a media type")
    return match[1].lower()
