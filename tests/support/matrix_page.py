"""docs/matrix.md: the results of the matrix of bridges. As a program, it runs the matrix and writes the page."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.bridges import BRIDGES, EMBEDDED, SECOND, Bridge
from support.bridges.client_fronts import ALL_FRONTS
from support.bridges.fronts import Front
from support.bridges.workload import ASPECTS, CARRIED, Plan, Shape, Workload
from support.process import GatewayProcess

__all__ = ["PAGE", "Found", "render"]

PAGE = Path(__file__).parents[2] / "docs" / "matrix.md"
HEAD = """\
# The matrix: every front over every back

To see whether clients of a protocol can use a server, find the pair in the first table: "ok" means that the tests below
passed. `make pages` runs them and writes this page; do not edit it. A front is the protocol of the clients, a back is
the server behind the gateway. Each pair ran one workload of random batches: bodies of 0 bytes to 64 KiB and of 1 MiB,
with and without headers. Records that were appended through one front were read through all of them, and compared byte
for byte. The client of Kafka is librdkafka, and gets names of headers that are text; that of Durable Streams is its
Python client, which appends to streams of JSON, and reads other streams as bytes.

{tried}
If a server lacks a feature, the gateway must refuse it and change nothing; the tables show its error. A dash: the
front's own protocol lacks the feature.

## Fronts and backs

Behind the gateway is the embedded store, or a second Penstock through the listener of that kind.

{summary}
## Each back

"""
TRIED = {
    "records": "appends; reads from the beginning and from random records; all fronts read the same order",
    "headers": "delivered as appended; S3P and segments carry them in envelopes, Durable Streams leaves them out "
    "([loss.md](loss.md))",
    "positions": "sequence numbers without gaps; sequence number, timestamp, identifier and offset of a record are the "
    "same position, and a read from any of them begins there",
    "following": "a reader that waits at the tail gets new records",
    "trim": "records before a position are removed, all others keep their positions: a command record through S2's "
    "fronts, TRIM through S3P, a truncation through segments, DeleteRecords through Kafka",
    "condition": "`match_seq_num`, S3P's `ID`, a conditional append: the append is stored only if the condition holds",
    "fence": "fencing tokens",
}
ABSENT = "These servers were not installed when this page was written (`make peers`).\n"
NOTHING = "-"


class Found:
    """Outcomes by bridge and front."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[Bridge, str], dict[str, str]] = {}

    def run(self, bridge: Bridge, gateway: GatewayProcess, front: type[Front], plan: Plan) -> None:
        """Run a plan, and add its outcome, which must equal that of earlier plans."""
        plan = plan.with_text_names() if bridge.text_names or front.text_names else plan
        outcome = Workload(gateway, front, plan, bridge.kind == "s2").run()
        known = self.outcomes.setdefault((bridge, front.name), outcome)
        assert known == outcome, f"{bridge} through {front.name}: {outcome}, before it {known}"

    def has(self, bridge: Bridge) -> bool:
        """Return whether every front was run over the bridge."""
        return all((bridge, front) in self.outcomes for front in ALL_FRONTS)

    @property
    def complete(self) -> bool:
        """True once every bridge that needs nothing installed was run."""
        return all(self.has(bridge) for bridge in BRIDGES if not bridge.real)


def render(found: Found, committed: str) -> str:
    """Return the page. Results of bridges that were not run are taken from the committed page."""
    kept = dict(re.findall(r"^### (.*)\n\n((?:(?!##).*\n)+)", committed, re.MULTILINE))
    backs = [EMBEDDED, *SECOND.values()]
    rows = [[front, *(_summary(found.outcomes[back, front]) for back in backs)] for front in ALL_FRONTS]
    tried = table(["", "test through each front"], [[aspect, TRIED[aspect]] for aspect in ASPECTS])
    text = HEAD.format(tried=tried, summary=table(["", *(back.kind for back in backs)], rows))
    for bridge in BRIDGES:
        title = bridge.kind if bridge is EMBEDDED else f"{bridge.kind}: {bridge.server}"
        text += f"### {title}\n\n"
        if found.has(bridge):
            rows = [[front, *(found.outcomes[bridge, front][aspect] for aspect in ASPECTS)] for front in ALL_FRONTS]
            text += table(["", *ASPECTS], rows) + "\n"
        else:
            text += kept.get(title, ABSENT).rstrip("\n") + "\n\n"
    return text.rstrip("\n") + "\n"


def write() -> None:
    """Run one plan through every front over every bridge whose server is installed, and write the page."""
    found = Found()
    plan = Plan([[Shape(1, 100, headers=((b"name", b"value"),))], [Shape(2, 5), Shape(3, 0)], [Shape(4, 65_536)]])
    for bridge in BRIDGES:
        with contextlib.suppress(pytest.skip.Exception), bridge.running() as gateway:
            for front in ALL_FRONTS.values():
                found.run(bridge, gateway, front, plan)
    PAGE.write_text(render(found, PAGE.read_text()))


def _summary(outcome: dict[str, str]) -> str:
    """All that is carried, in a word, and what is not."""
    lacking = [aspect for aspect, words in outcome.items() if words not in (CARRIED, NOTHING)]
    return "ok" if not lacking else f"ok, without {', '.join(lacking)}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines).replace("|  |", "| |")


if __name__ == "__main__":
    write()
