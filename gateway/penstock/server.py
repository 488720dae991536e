"""The process: opens the store, listens, changes what it does when it is told to, and stops without losing what it has
acknowledged.

recordings > store > backs > mirrors > a nursery for each listener's connections (its deadline is set on drain)
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final

import structlog
import trio

from penstock.accepting import Listener
from penstock.backs.base import Back
from penstock.backs.embedded import EmbeddedBack
from penstock.config import Config
from penstock.errors import out_of_groups
from penstock.faults.rules import Faults
from penstock.limits import Limiter
from penstock.management.traffic import Traffic
from penstock.places import MANAGEMENT, Places
from penstock.recorder.connections import Connections
from penstock.reload import Parts, Reloader
from penstock.running import Running
from penstock.surroundings import ALONE, Surroundings
from penstock.tls import CERTIFICATES
from penstock.wiring import fault_settings, open_listeners, open_recordings, open_routing
from penstock.wiring.tracing import open_tracing
from penstock.workers.crew import Crew

__all__ = ["Running", "serve"]

log = structlog.get_logger()

MAX_DESCRIPTORS: Final = 65_536
"""The limit on open files is raised to this where the system lets us; each connection needs one."""


async def serve(
    config: Config,
    surroundings: Surroundings | None = None,
    *,
    task_status: trio.TaskStatus[Running] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a gateway until it is drained or cancelled.

    `task_status` gives a `Running` once every listener accepts. Raises CannotStart. When drained it says that it is not
    ready, accepts for `drain.accept_seconds`, then takes no more connections, tells each front, and gives connections
    `drain.deadline_seconds` to end.
    """
    surroundings = surroundings or ALONE
    _raise_descriptor_limit()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(CERTIFICATES.watched())
        await stack.enter_async_context(open_tracing(config))
        taps = Connections()
        recordings = await stack.enter_async_context(open_recordings(config, taps))
        embedded = await stack.enter_async_context(surroundings.open_embedded(config))
        routing = await stack.enter_async_context(open_routing(config, embedded, taps.dialled))
        limiter = Limiter(config.limits)
        faults = Faults(fault_settings(config.faults))
        places = stack.enter_context(contextlib.closing(Places(surroundings.sockets, limiter, taps)))
        labels = [label for label, _ in config.listeners.labelled()]
        traffic = Traffic(taps, recordings, labels, config.backs)
        traffic.others = crew = _crew(config, embedded, surroundings, stack)
        parts = Parts(
            embedded=embedded,
            routing=routing,
            places=places,
            limiter=limiter,
            recordings=recordings,
            traffic=traffic,
            faults=faults,
            build=lambda config, router: _own(
                open_listeners(config, router, traffic, running.controls, faults), crew is not None
            ),
        )
        running = Running(Reloader(config, parts), parts, surroundings, crew)
        opened = [await places.open(listener) for listener in parts.build(config, routing.router)]
        stack.enter_context(out_of_groups())
        async with trio.open_nursery() as nursery:
            if crew is not None:
                await crew.begin(nursery)
            await places.begin(nursery, opened)
            surroundings.notifier.ready("serving")
            task_status.started(running)
            await running.drained()
    log.info("stopped")


def _crew(config: Config, embedded: Back, surroundings: Surroundings, stack: contextlib.AsyncExitStack) -> Crew | None:
    """The processes that serve the clients; None: this one does."""
    if config.workers == 1:
        return None
    assert isinstance(embedded, EmbeddedBack), "who has workers has the store"
    return stack.enter_context(contextlib.closing(Crew(config, embedded, surroundings.sockets)))


def _own(listeners: list[Listener], others_serve: bool) -> list[Listener]:
    """Those of this process: all, or that for operators, where others serve the clients."""
    return [one for one in listeners if one.protocol == MANAGEMENT or not others_serve]


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
