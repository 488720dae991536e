"""Access tokens in the gateway's state at a server: gateways with the same state have the same tokens.

A token is two items of the table. The key of the first is the one in the token's text, made from the token's id, so
that two gateways cannot issue the same id at once; its value is the SHA-256 of the secret, 32 bytes, and S2's
AccessTokenInfo as JSON. The second is for listings, which are in the order of ids: its key is `id:` and the id, its
value the AccessTokenInfo again, so that one read makes a page.

Look-ups use what the gateway has read of the state, and ask no server: it follows the state's log, so it knows of a
change some ms after it was acknowledged. Issuing, listing and revoking ask for the log's end first.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from typing import Final

from penstock.backends.logged_tables import LoggedTables
from penstock.core.grants import Grant
from penstock.core.internal_names import GATEWAY_TABLES
from penstock.model.access_tokens import AccessTokenInfo, decode_info, encode_info
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.table_operations import NOT_EXISTS, ReadTable
from penstock.routing.access.authority import TokenPlace
from penstock.routing.access.token_file import TokenPage, new_secret
from penstock.tables.byte_table import ByteTable

__all__ = ["TableOfTokens"]

TABLE: Final = f"{GATEWAY_TABLES}access-tokens"
_BY_ID: Final = b"id:"
"""Beginning of the keys of items for listings."""
_DIGEST: Final = 32
"""Bytes of a digest."""


class TableOfTokens(TokenPlace):
    """The tokens in a state that several gateways share."""

    def __init__(self, state: LoggedTables) -> None:
        self._state = state
        self._table = ByteTable(state, TABLE)

    def find(self, key: str, digest: bytes) -> Grant | None:
        """See `TokenPlace.find`. Raises HOT_SERVER while the state cannot be read, as `LoggedTables.recent` does."""
        try:
            (item,) = self._state.recent(ReadTable(TABLE, (key.encode(),)))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
            return None
        if item is None or not hmac.compare_digest(item.value[:_DIGEST], digest):
            return None
        return _grant(key, item.value)

    async def issue(self, info: AccessTokenInfo, now_ms: int) -> str:
        key = _key_of(info.id)
        secret, digest = new_secret()
        while True:
            (item,) = await self._table.entries(key.encode())
            if item is not None:
                ends = _info(item.value).expires_ms
                if ends is None or ends > now_ms:
                    reason = f"there is an access token {info.id} already"
                    raise fail(FailureCode.RESOURCE_ALREADY_EXISTS, reason)
            version = NOT_EXISTS if item is None else item.version
            encoded = encode_info(info)
            listed = _BY_ID + info.id.encode(), encoded
            if await self._table.replace(key.encode(), digest + encoded, version, listed) is not None:
                return f"pst_{key}_{secret}"

    async def page(self, prefix: str, start_after: str, limit: int) -> TokenPage:
        rows, more = await self._table.page(_BY_ID + start_after.encode(), limit, _BY_ID + prefix.encode())
        return TokenPage([decode_info(value) for _, value in rows], more)

    async def revoke(self, token_id: str) -> None:
        key = _key_of(token_id).encode()
        while True:
            (item,) = await self._table.entries(key)
            if item is None or _info(item.value).id != token_id:
                raise fail(FailureCode.ACCESS_TOKEN_NOT_FOUND, f"there is no access token {token_id}")
            if await self._table.remove_version(key, item.version, _BY_ID + token_id.encode()):
                return


def _key_of(token_id: str) -> str:
    return hashlib.sha256(token_id.encode()).hexdigest()[:16]


def _info(value: bytes) -> AccessTokenInfo:
    return decode_info(value[_DIGEST:])


@lru_cache(10_000)
def _grant(key: str, value: bytes) -> Grant:
    """Return the grant that an item stands for."""
    return Grant(_info(value), key, value[:_DIGEST])
