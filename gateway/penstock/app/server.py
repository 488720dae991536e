"""The gateway's process: opens the store, listens, reloads, and stops without losing what it has acknowledged.

recordings > store > backs > mirrors > a nursery for each listener's connections (its deadline is set on drain)
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final

import structlog
import trio

from penstock.app.bootstrap import fault_settings, open_listeners, open_recordings, open_routing
from penstock.app.bootstrap.tracing import open_tracing
from penstock.app.config import Config
from penstock.app.host import ALONE, HostServices
from penstock.app.management.traffic import Traffic
from penstock.app.reload import Parts, Reloader
from penstock.app.running import RunningGateway
from penstock.core.errors import out_of_groups
from penstock.net.limits import Limiter
from penstock.net.listeners import ListenerSet
from penstock.net.tls import CERTIFICATES
from penstock.observe.taps.connections import Connections
from penstock.routing.faults.rules import Faults

__all__ = ["RunningGateway", "serve"]

log = structlog.get_logger()

MAX_DESCRIPTORS: Final = 65_536
"""The soft limit on open files is raised to this if the system allows; each connection needs one."""


async def serve(
    config: Config,
    surroundings: HostServices | None = None,
    *,
    task_status: trio.TaskStatus[RunningGateway] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a gateway until it is drained or cancelled.

    `task_status` passes a `RunningGateway` once every listener accepts. Raises CannotStart. When drained, the gateway
    reports that it is not ready, accepts for `drain.accept_seconds`, stops accepting, tells each front, and gives
    connections `drain.deadline_seconds` to end.
    """
    surroundings = surroundings or ALONE
    _raise_descriptor_limit()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(CERTIFICATES.watched())
        await stack.enter_async_context(open_tracing(config))
        taps = Connections()
        recordings = await stack.enter_async_context(open_recordings(config, taps))
        embedded = await stack.enter_async_context(surroundings.open_embedded(config, taps.dialled))
        routing = await stack.enter_async_context(open_routing(config, embedded, taps.dialled))
        limiter = Limiter(config.limits)
        faults = Faults(fault_settings(config.faults))
        places = stack.enter_context(contextlib.closing(ListenerSet(surroundings.sockets, limiter, taps)))
        labels = [label for label, _ in config.listeners.labelled()]
        traffic = Traffic(taps, recordings, labels, config.backs)
        parts = Parts(
            embedded=embedded,
            routing=routing,
            places=places,
            limiter=limiter,
            recordings=recordings,
            traffic=traffic,
            faults=faults,
            build=lambda config, router: open_listeners(config, router, traffic, running.controls, faults),
        )
        running = RunningGateway(Reloader(config, parts), parts, surroundings)
        opened = [await places.open(listener) for listener in parts.build(config, routing.router)]
        stack.enter_context(out_of_groups())
        async with trio.open_nursery() as nursery:
            await places.begin(nursery, opened)
            surroundings.notifier.ready("serving")
            task_status.started(running)
            await running.drained()
    log.info("stopped")


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
