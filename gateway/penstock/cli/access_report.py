"""What `penstock check` says of access: who needs which token or password."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.config import Config, ControllerListener, S2Listener, SegmentListener

__all__ = ["access_lines", "pravega_clients", "s2_clients"]


def s2_clients(config: Config, listener: S2Listener) -> str:
    """Who is served by a listener of S2."""
    count = len(listener.auth_tokens)
    tokens = [f"one of {count} bearer tokens"] if count else []
    if config.access is not None:
        tokens.append("an access token")
    if not tokens:
        return "anybody, without a token"
    those = f"those with {' or '.join(tokens)}"
    return f"anybody without a token, and {those}" if listener.anonymous else those


def pravega_clients(config: Config, listener: SegmentListener | ControllerListener) -> str:
    """Who is served by a listener of segments, or by a controller."""
    if isinstance(listener, SegmentListener):
        return "those with a delegation token" if listener.delegation_tokens else "anybody"
    guarded = config.listeners.segment and config.listeners.segment_of(listener).delegation_tokens
    return "those with a user name and password" if guarded else "anybody"


def access_lines(config: Config) -> Iterator[str]:
    """Where tokens are, and what Pravega's clients have to show."""
    if config.access is not None:
        path = config.access.path(config.store.directory)
        yield f"Access tokens for S2 are in {path}, as hashes; `penstock token` issues and revokes them"
    users = [identity.username for identity in config.identities if identity.username is not None]
    for label, listener in config.listeners.labelled():
        if isinstance(listener, SegmentListener) and listener.delegation_tokens:
            yield (
                f"listeners.{label}: all requests need a delegation token, good for "
                f"{listener.delegation_token_seconds} s, which its controllers give for the password of "
                f"{' or '.join(users) or 'nobody: no identity has a username'}"
            )
