"""Authentication of the controller's clients, the same for gRPC and REST."""

from __future__ import annotations

import structlog
from msgspec.structs import replace

from penstock.core.identity import CLIENT
from penstock.model.failures import FailureCode, fail
from penstock.net.http.exchange import Request
from penstock.observe.taps.tap import note_identity
from penstock.routing.access.passwords import basic_credentials
from penstock_pravega.controller.controller.settings import ControllerSettings

__all__ = ["authenticate"]

log = structlog.get_logger()


async def authenticate(request: Request, settings: ControllerSettings) -> None:
    """Set the client's identity by its Basic credentials, if delegation tokens are configured. Raises AUTHN."""
    if settings.delegation is None:
        return
    shown = basic_credentials(request.header("authorization"))
    passwords = settings.passwords
    identity = None if shown is None or passwords is None else await passwords.identity(*shown)
    if identity is None:
        log.info("call_refused", path=request.path, reason="no valid user name and password")
        raise fail(FailureCode.AUTHN, "a valid user name and password are required")
    CLIENT.set(replace(CLIENT.get(), identity=identity))
    note_identity(identity)
