"""Print what the structure of the source is like: sizes by package, import cycles, and six traced operations.

`make measure` runs it. The traces run a gateway in a thread of this process and count its Python calls in Penstock's
own packages, from a client's first byte until the gateway is quiet again. The client's thread is not traced.
"""

from __future__ import annotations

import ast
import gc
import itertools
import logging
import math
import queue
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import structlog

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = {
    "penstock_spark": "pipeline",
    "penstock": "gateway",
    "penstock_proto": "proto",
    "penstock_durable": "codecs",
    "penstock_kafka": "codecs",
    "penstock_pravega": "codecs",
    "penstock_s2": "codecs",
    "penstock_s3p": "codecs",
}
"""The import packages, and the folders that hold them."""


# ---- modules and imports -------------------------------------------------------------------------------------------


def modules() -> dict[str, Path]:
    """Return every module of the source with its file; generated ones are left out."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in (ROOT / folder / package).rglob("*.py"):
            if "_pb2" not in path.name:
                parts = path.relative_to(ROOT / folder).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def lines_of(folder: Path) -> int:
    """Return the number of lines of the modules in a folder; 0 if there is no such folder."""
    return sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py") if "_pb2" not in path.name)


def syntax_trees() -> dict[str, ast.Module]:
    """Return the syntax tree of every module."""
    collects = gc.isenabled()
    gc.disable()  # it would pass over the trees again and again while they grow: four times the work
    try:
        return {name: ast.parse(path.read_text()) for name, path in modules().items()}
    finally:
        if collects:
            gc.enable()


def imports(name: str, tree: ast.Module, known: Mapping[str, object]) -> set[str]:
    """Return the modules that a module imports, those that only a type checker sees included."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
    return (found & known.keys()) - {name}


def import_graph(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Return the imports of every module."""
    return {name: imports(name, tree, trees) for name, tree in trees.items()}


def import_cycle(trees: dict[str, ast.Module]) -> list[str]:
    """Return one cycle of modules that import each other; empty if there is none."""
    try:
        TopologicalSorter(import_graph(trees)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


# ---- six operations, traced -----------------------------------------------------------------------------------------


QUIET_SECONDS: Final = 0.2
TURNS: Final = {"TURN_SECONDS", "_TURN_SECONDS"}
"""The constants that end a turn. Tracing makes the gateway so slow that the turns of its short requests would be over,
and their rest would be left to other tasks."""


class Way(NamedTuple):
    """The Python calls that one operation makes in Penstock's packages, in all threads of the process."""

    calls: int
    functions: int
    files: int
    moves: int
    """Calls into a function of another file than the caller's call before it."""


class Tracer:
    """Collects the calls of the threads that are started after `install`."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, str]] = []
        self._roots = tuple(f"{ROOT / folder / package}/" for package, folder in PACKAGES.items())

    def install(self) -> None:
        """Trace all threads that start from now on."""
        threading.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_filename.startswith(self._roots):
                self._calls.append((code.co_filename, code.co_qualname))

    def trace(self, operation: Callable[[], object]) -> Way:
        """Run an operation, whose modules are imported, and count the calls until the threads are quiet again."""
        for module in list(sys.modules.values()):
            for name in TURNS & vars(module).keys() if module.__name__.startswith("penstock") else ():
                setattr(module, name, math.inf)
        self._settle()
        self._calls.clear()
        operation()
        self._settle()
        files = [file for file, _ in self._calls]
        moves = sum(before != after for before, after in itertools.pairwise(files))
        return Way(len(files), len(set(self._calls)), len(set(files)), moves)

    def _settle(self) -> None:
        """Wait until no thread has made a call for QUIET_SECONDS."""
        before = -1
        while before != len(self._calls):
            before = len(self._calls)
            time.sleep(QUIET_SECONDS)


@contextmanager
def gateway(text: str) -> Iterator[dict[str, Any]]:
    """Run a gateway of this configuration in a traced thread; gives the addresses of its listeners by name."""
    import trio

    from penstock.app.config import parse_config
    from penstock.app.server import serve

    started: queue.SimpleQueue[Any] = queue.SimpleQueue()

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            running = await nursery.start(serve, parse_config(text))
            started.put((trio.lowlevel.current_trio_token(), running))

    worker = threading.Thread(target=trio.run, args=(run,))
    worker.start()
    token, running = started.get(timeout=30)
    try:
        yield {name: bound[0] for name, bound in running.addresses.items()}
    finally:
        trio.from_thread.run_sync(running.drain, trio_token=token)
        worker.join()


SERVER: Final = """
[listeners.s2]
bind = "127.0.0.1:0"
[listeners.s3p]
bind = "127.0.0.1:0"
basin = "penstock"
[listeners.segment]
bind = "127.0.0.1:0"
basin = "penstock"
[listeners.kafka]
bind = "127.0.0.1:0"
basin = "penstock"
[management]
bind = "127.0.0.1:0"
[store]
directory = "{directory}"
[[store.basins]]
name = "penstock"
create_stream_on_append = true
[log]
level = "error"
"""
RELAY: Final = """
[listeners.s2]
bind = "127.0.0.1:0"
[management]
bind = "127.0.0.1:0"
[store]
directory = "{directory}"
[backs.far]
kind = "s2"
address = "{far}"
[[routes]]
name = "all"
back = "far"
[log]
level = "error"
"""


def ways() -> Iterator[tuple[str, Way]]:
    """Trace six operations on their second run, with every cache warm."""
    from support.kafka.plain import KafkaSocket
    from support.process import GatewayProcess
    from support.s2.client import S2Client, open_stream, stream_path
    from support.s2.frames import Session, append_input
    from support.s3p.client import S3PClient
    from support.segment.client import ReleasedSocket

    batch = append_input(*[b"x" * 100] * 100)
    s2s = {"s2-basin": "penstock", "content-type": "s2s/proto", "accept": "s2s/proto"}
    tracer = Tracer()
    tracer.install()

    def session(address: Any) -> Session:
        opened = Session(open_stream(address, "h1", "POST", stream_path("one") + "/records", s2s))
        opened.send(batch)
        opened.ack()
        return opened

    def append(opened: Session) -> Callable[[], object]:
        def run() -> None:
            opened.send(batch)
            opened.ack()

        return run

    with tempfile.TemporaryDirectory() as directory, gateway(SERVER.format(directory=directory)) as bound:
        session(bound["listeners.s2"]).close()
        with ExitStack() as held:
            again = tracer.trace(lambda: held.enter_context(session(bound["listeners.s2"])))
        yield "open an S2S append session, with its first append", again
        with session(bound["listeners.s2"]) as opened:
            append(opened)()
            yield "one S2S append, socket to commit to acknowledgement", tracer.trace(append(opened))
        S2Client(bound["listeners.s2"], "penstock").append("five", *"abcde")
        with S3PClient(bound["listeners.s3p"]) as s3p:
            read = (b"READ", b"five", [])
            for _ in range(2):
                s3p.call(*read)
            yield "S3P READ of five records", tracer.trace(lambda: s3p.call(*read))
        with ReleasedSocket(bound["listeners.segment"]) as store:
            segment = store.new("scope/events/0.#epoch.0", b"first")
            writer = store.writer(segment)
            store.append(writer, [b"x" * 100] * 100, 100)
            yield "a segment block append", tracer.trace(lambda: store.append(writer, [b"x" * 100] * 100, 200))
        with KafkaSocket(bound["listeners.kafka"]) as kafka:
            S2Client(bound["listeners.s2"], "penstock").append("topic", "a")
            values = [b"x" * 100] * 100
            for _ in range(2):
                assert kafka.produce("topic", *values).error_code == 0
            yield "a Kafka produce", tracer.trace(lambda: kafka.produce("topic", *values))

    with tempfile.TemporaryDirectory() as directory, GatewayProcess() as far:
        relay = RELAY.format(directory=directory, far=f"127.0.0.1:{far.s2_port}")
        with gateway(relay) as bound, session(bound["listeners.s2"]) as opened:
            append(opened)()
            yield "one batch relayed S2S to S2S", tracer.trace(append(opened))


def main() -> None:
    """Print the tables."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    sizes = sorted((len(path.read_text().splitlines()), name) for name, path in modules().items())
    print(f"modules: {len(sizes)}, lines: {sum(size for size, _ in sizes)}")
    print(f"median {statistics.median(size for size, _ in sizes):g}, largest {sizes[-1][0]} ({sizes[-1][1]})")
    trees = syntax_trees()
    print(f"import cycle: {' > '.join(import_cycle(trees)) or 'none'}")
    for package, folder in PACKAGES.items():
        lines, tests = lines_of(ROOT / folder / package), lines_of(ROOT / "tests" / package)
        print(f"{package}: {lines} lines, tests of its own {tests}")
    print(f"\n{'operation':52} {'calls':>6} {'functions':>9} {'files':>6} {'moves':>6}")
    for name, way in ways():
        print(f"{name:52} {way.calls:6} {way.functions:9} {way.files:6} {way.moves:6}")


if __name__ == "__main__":
    main()
