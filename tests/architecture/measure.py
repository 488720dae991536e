"""Print what the structure of the source is like: sizes, import cycles, five traced operations, leaked protocol names,
and what each protocol took: its lines in every layer, and the modules that its commits changed elsewhere.

`make measure` runs it. The traces run a gateway in a thread of this process and count its Python calls in Penstock's
own packages, from a client's first byte until the gateway is quiet again. The client's thread is not traced.
"""

from __future__ import annotations

import ast
import gc
import itertools
import logging
import queue
import re
import statistics
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
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
    "penstock_analysis": "analysis",
    "penstock_codecs": "codecs",
    "penstock_proto": "proto",
    "penstock_durable": "codecs",
    "penstock_kafka": "codecs",
    "penstock_s2": "codecs",
    "penstock_s3p": "codecs",
}
"""The import packages, and the folders that hold them."""
PROTOCOLS: Final = {
    "kafka": ("kafka",),
    "s2": ("s2", "s2s", "sse"),
    "s3p": ("s3p",),
    "segment": ("segment", "controller", "pravega"),
}
"""Words that name a protocol in an identifier or a string, by protocol."""
OWN_WORDS: Final = {"durable": ("sse",), "kafka": ("controller",), "penstock_spark": ("s2", "s2s")}
"""Words of other protocols that a folder's modules have as well: Spark reads and writes streams over S2S alone."""


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


# ---- names of protocols outside their folders -----------------------------------------------------------------------


SHARED: Final = {
    "Durable Streams of records keep each as S2's AppendInput": re.compile(r"s2_pb2"),
    "settings of Kafka's topics, and the stored name of an encoding": re.compile(
        r"segment[.](bytes|ms|jitter[.]ms|index[.]bytes)"
    ),
    "a segment of a path, or of TCP": re.compile(r"(en|de)code_path_segment|_?[Ss]egment(_of|_COST)?|_SEGMENT_COST"),
}
"""Words that only look like the name of a protocol, with the reason."""


def leaks(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Return, for each protocol, the modules outside its folders whose code names it. Comments, docstrings and the
    words in SHARED do not count."""
    found: dict[str, set[str]] = {protocol: set() for protocol in PROTOCOLS}
    for name, tree in trees.items():
        texts = [text for text in set(_texts(tree, trees)) if not any(one.fullmatch(text) for one in SHARED.values())]
        words = set("".join(one if one.isalnum() else " " for one in " ".join(texts)).lower().split())
        for protocol, spellings in PROTOCOLS.items():
            parts = name.split(".")
            own = {word for part in parts for word in OWN_WORDS.get(part, ())}
            inside = any(part.removeprefix("penstock_") in spellings for part in parts)
            if not inside and any(spelling in words - own for spelling in spellings):
                found[protocol].add(name)
    return found


def _texts(tree: ast.Module, known: Container[str]) -> list[str]:
    """Return the identifiers, the imports and the short strings of a module."""
    texts: list[str] = []
    docstrings = set()
    for node in ast.walk(tree):  # parents first
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                if node.body and isinstance(node.body[0], ast.Expr):
                    docstrings.add(id(node.body[0].value))
                if not isinstance(node, ast.Module):
                    texts.append(node.name)
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text) | ast.keyword(arg=str(text)):
                texts.append(text)
            case ast.ImportFrom(module=str(text)):
                texts += [text, *(f"{text}.{alias.name}" for alias in node.names if f"{text}.{alias.name}" in known)]
            case ast.Constant(value=str(text)) if id(node) not in docstrings and len(text) < 40:
                texts.append(text)
    return texts


# ---- what a protocol took --------------------------------------------------------------------------------------------


def folders() -> list[str]:
    """Return the names of the folders that protocols have in the gateway or as packages of their own."""
    plugins = [*ROOT.glob("gateway/penstock/protocols/*/plugin.py"), *ROOT.glob("codecs/penstock_*/plugin.py")]
    return sorted(path.parent.name.removeprefix("penstock_") for path in plugins)


def lines_of(protocol: str) -> dict[str, int]:
    """Return the lines of a protocol's folder in each layer, by the folder that holds the layer, and of its tests."""
    found: Counter[str] = Counter()
    for name, path in modules().items():
        if protocol in name.removeprefix("penstock_").split("."):
            found[PACKAGES[name.split(".")[0]]] += len(path.read_text().splitlines())
    for path in (ROOT / "tests").rglob("*.py"):
        parts = path.relative_to(ROOT / "tests").with_suffix("").parts
        if any(protocol in part.split("_") for part in parts):
            found["tests"] += len(path.read_text().splitlines())
    return dict(found)


class Commit(NamedTuple):
    """A commit, and the lines that it added to and removed from each file of the source."""

    subject: str
    changed: dict[str, int]

    def elsewhere(self, protocol: str) -> list[str]:
        """Return the files outside a protocol's folders, if most of the changed lines are inside; else none."""
        inside = {path for path in self.changed if {protocol, f"penstock_{protocol}"} & set(path.split("/"))}
        share = sum(self.changed[path] for path in inside)
        return sorted(self.changed.keys() - inside) if 2 * share > sum(self.changed.values()) else []


def commits() -> list[Commit]:
    """Return all commits that git knows, the oldest first; none outside a clone."""
    roots = [f"{folder}/{package}/" for package, folder in PACKAGES.items()]
    command = [
        "git",
        "log",
        "--no-merges",
        "--reverse",
        "--no-renames",
        "--numstat",
        "--format=%x00%h %s",
        "--",
        *roots,
    ]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    found = []
    for text in said.split("\0")[1:]:
        subject, *rows = text.strip().splitlines()
        files = [row.split("\t") for row in rows if row.endswith(".py") and "_pb2" not in row]
        found.append(Commit(subject, {path: int(more) + int(less) for more, less, path in files}))
    return found


# ---- five operations, traced ----------------------------------------------------------------------------------------


QUIET_SECONDS: Final = 0.2


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
        """Run an operation, and count the calls until the threads are quiet again."""
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
    """Trace five operations on their second run, with every cache warm."""
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
    for protocol, found in leaks(trees).items():
        print(f"modules outside the folders of {protocol} that name it: {len(found)} {' '.join(sorted(found))}")
    known = commits()
    for protocol in folders():
        layers = lines_of(protocol)
        print(f"\n{protocol}: {', '.join(f'{size} lines in {layer}' for layer, size in layers.items())}")
        for commit in known:
            if files := commit.elsewhere(protocol):
                print(f"  {commit.subject}: {' '.join(files)}")
    print(f"\n{'operation':52} {'calls':>6} {'functions':>9} {'files':>6} {'moves':>6}")
    for name, way in ways():
        print(f"{name:52} {way.calls:6} {way.functions:9} {way.files:6} {way.moves:6}")


if __name__ == "__main__":
    main()
