"""Builds the recorder of a configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
import trio

from penstock.app.config import EMBEDDED, Config, RecorderTable, RedactTable, kind_of_back, listener_kind_of
from penstock.capture.redaction.rules import RedactionRules
from penstock.core.errors import CannotStart
from penstock.observe.metrics.series import sampling
from penstock.observe.taps.connections import Connections
from penstock.recorder.recorder import Recorder
from penstock.recorder.recordings import Recordings
from penstock.recorder.selection import Selection
from penstock.recorder.settings import FileCompression, FileSettings, Priority, Sync

__all__ = [
    "backs_of_routes",
    "file_settings",
    "open_recordings",
    "recording_rules",
    "redaction_effects",
    "redaction_rules",
    "selection_of",
]

log = structlog.get_logger()


@asynccontextmanager
async def open_recordings(config: Config, connections: Connections) -> AsyncIterator[Recordings]:
    """Run the recorder until the block ends, with the configured recording. Enter it before anything listens or
    connects. A block that raises CannotStart leaves no empty file behind.

    Raises CannotStart if the directory cannot be written to."""
    table = config.recorder
    recorder = Recorder(connections, backs_of_routes(config))
    files = None if table is None else file_settings(table)
    recordings = Recordings(recorder, files, recording_rules(config))
    try:
        if table is not None and (table.redact.record_headers or table.redact.patterns):
            for protocol, texts in redaction_effects(config).items():
                log.info("recorder_redacts", protocol=protocol, **texts)
        if table is not None and table.start:
            await recordings.start(selection_of(table), configured=True)
        manager = trio.open_nursery()
        nursery = await manager.__aenter__()
        nursery.start_soon(recorder.run)
        try:
            with sampling(recordings.samples):
                yield recordings
        except CannotStart:
            recordings.drop_empty()
            raise
        finally:  # an exception of the block propagates as it is, not in a group
            nursery.cancel_scope.cancel()
            await manager.__aexit__(None, None, None)
    finally:
        await recordings.close()


def backs_of_routes(config: Config) -> dict[str, tuple[str, ...]]:
    """Return for each route the servers that it leads to, including its mirror."""
    both = {route.name: (route.back, route.mirror) for route in config.routes}
    return {name: tuple(back for back in backs if back not in (None, EMBEDDED)) for name, backs in both.items()}


def selection_of(table: RecorderTable) -> Selection:
    """Return the selection of connections that the configured recording starts with."""
    return Selection(
        listeners=table.listeners,
        backs=table.backs,
        protocols=table.protocols,
        routes=table.routes,
        streams=table.streams,
    )


def file_settings(table: RecorderTable) -> FileSettings:
    """Return the settings of recordings into files. 0 in the configuration means no bound."""
    return FileSettings(
        directory=Path(table.directory).absolute(),
        rotate_bytes=table.rotate_bytes or None,
        rotate_seconds=table.rotate_seconds or None,
        keep_files=table.keep_files or None,
        keep_bytes=table.keep_bytes or None,
        compress=FileCompression(table.compress),
        fsync=Sync(table.fsync),
        fsync_seconds=table.fsync_seconds,
        queue_bytes=table.queue_bytes,
        priority=Priority(table.priority),
    )


def recording_rules(config: Config) -> RedactionRules | None:
    """Return the redaction rules of every recording."""
    return redaction_rules(RedactTable() if config.recorder is None else config.recorder.redact)


def redaction_effects(config: Config) -> dict[str, dict[str, str]]:
    """Return what the redaction rules blank and withhold, by the protocols of listeners and backs and by rule."""
    rules = recording_rules(config)
    protocols = {listener_kind_of(label) for label, _ in config.listeners.labelled()}
    protocols |= {kind_of_back(table) for table in config.backs.values()}
    effects = {protocol: rules.effects(protocol) for protocol in sorted(protocols)} if rules is not None else {}
    return {protocol: texts for protocol, texts in effects.items() if texts}


def redaction_rules(table: RedactTable) -> RedactionRules | None:
    """Return the redaction rules of a table, or None if it redacts nothing. Names and patterns are matched as UTF-8."""
    if not any(getattr(table, key) for key in table.__struct_fields__):
        return None
    return RedactionRules(
        headers=table.headers,
        parameters=table.parameters,
        tokens=table.tokens,
        record_headers=tuple(name.encode() for name in table.record_headers),
        patterns=tuple(pattern.encode() for pattern in table.patterns),
    )
