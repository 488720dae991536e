"""The management page of a busy gateway, view by view: for tests, for the judge of accessibility, and for
docs/page.md.

    python tests/support/page_views.py    # takes the pictures anew, and writes docs/page.md
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":  # as a program: find the package
    sys.path.insert(0, str(Path(__file__).parents[1]))

from PIL import Image
from support.browser import Browser, Tab, browser_program
from support.captures.recording import capture_files
from support.management import ask
from support.process import BASIN, CONFIG, GatewayProcess
from support.s2.client import S2Client
from support.s3p.client import S3PClient

__all__ = ["AXE", "PAGE_CONFIG", "READY", "PageView", "busy_gateway", "show", "views_of", "violations"]

AXE = Path(__file__).parents[1] / "judges" / "node_modules" / "axe-core"
"""The judge of accessibility; `npm ci --prefix tests/judges` installs it."""

RECORDER = """
[recorder]
directory = "{data}/recordings"
start = false
"""
AWAY = """
[backs.archive]
kind = "s2"
address = "127.0.0.1:9"

[[routes]]
name = "everything"
back = "embedded"
mirror = "archive"
"""
PAGE_CONFIG = CONFIG + RECORDER
READY = "document.querySelector('#ready')?.dataset.state === 'ready'"
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
GALLERY = PICTURES.parent / "page.md"
_WIDTHS = {"wide": 1280, "narrow": 390}
THEMES = ("light", "dark")
_COLOURS = 48
_HISTORY_SECONDS = 60
"""Traffic before the pictures are taken."""
_ORDERS = [
    '{"order": 1001, "item": "valve", "count": 2}',
    '{"order": 1002, "item": "gasket", "count": 40}',
    '{"order": 1003, "item": "flange", "count": 6}',
]


@dataclass(frozen=True)
class PageView:
    """A view: its name, its address behind `#/`, and JavaScript that is true once it is drawn. `open`: JavaScript that
    opens more of it."""

    name: str
    route: str
    drawn: str
    open: str = ""


def views_of(gateway: GatewayProcess) -> list[PageView]:
    """Return all views of a gateway of `busy_gateway`."""
    one, other = [file.name for file in capture_files(gateway.data / "recordings")][:2]
    has = "document.querySelector('{} tbody tr') !== null".format
    live = " && document.querySelector('#throughput .line.in').getAttribute('d')"
    panel = "document.querySelector('.inspector:not([hidden])')"
    press = "document.querySelector('#view tbody button.link').click()"
    return [
        PageView("overview", "", "document.querySelector('#process dl')" + live),
        PageView("streams", "streams", has("#view")),
        PageView("stream", f"stream?name={BASIN}/orders", has("#view")),
        PageView(
            "record", f"stream?name={BASIN}/orders", f"{panel} && {panel}.querySelectorAll('dl div').length > 4", press
        ),
        PageView("messages", "messages", has("#view")),
        PageView("message", f"recording?name={one}&filter=kind%3DAppendAck", f"{panel} !== null", press),
        PageView("connections", "connections", has("#view")),
        PageView("recordings", "recordings", has("#view")),
        PageView("recording", f"recording?name={one}", has("#view")),
        PageView("comparison", f"compare?a={one}&b={other}", "document.querySelector('#verdict')?.dataset.equal"),
        PageView("routes", "routes", "document.querySelector('.picture svg')"),
    ]


def show(tab: Tab, gateway: GatewayProcess, view: PageView) -> None:
    """Go to a view, and wait until it is drawn."""
    tab.load(f"http://127.0.0.1:{gateway.management_port}/#/{view.route}")
    tab.evaluate("window.isOld = true; location.reload()")
    tab.until(f"!window.isOld && document.readyState === 'complete' && {READY}")
    if view.open:
        tab.until("document.querySelector('#view tbody button.link')")
        tab.evaluate(view.open)
    tab.until(view.drawn)


def violations(tab: Tab) -> tuple[int, list[str]]:
    """Return the number of axe's rules that apply, and the rules that the page breaks, with the elements."""
    tab.evaluate((AXE / "axe.min.js").read_text() + "; true")
    said = tab.evaluate(
        "axe.run().then((all) => ({passes: all.passes.length, violations: "
        "all.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.target).join(' ')}`)}))"
    )
    return said["passes"] + len(said["violations"]), said["violations"]


@contextmanager
def busy_gateway() -> Iterator[GatewayProcess]:
    """A gateway with streams, open connections, two recordings that differ, and a back that is away."""
    with GatewayProcess(PAGE_CONFIG.replace("[listeners.s2]", AWAY + "\n[listeners.s2]", 1)) as gateway:
        s2 = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
        for orders in (_ORDERS, [*_ORDERS[:1], '{"order": 1002, "item": "gasket", "count": 41}']):
            _, recording = ask(gateway.management_port, "/recordings", {"streams": [f"{BASIN}/orders"]})
            s2.append("orders", *orders)
            ask(gateway.management_port, f"/recordings/{recording['id']}/stop", {})
        for name in ("invoices", "shipments"):
            s2.append(name, "created", "sent")
        with S3PClient(("127.0.0.1", gateway.s3p_port)) as client, s2.events("orders", seq_num=0) as events:
            client.create("readings")
            client.append("readings", b"21.5 C")
            events.batch()
            over = threading.Event()
            busy = threading.Thread(target=_work, args=(s2, over))
            busy.start()
            try:
                yield gateway
            finally:
                over.set()
                busy.join()


def _work(s2: S2Client, over: threading.Event) -> None:
    """Append and read until it is over."""
    turn = 0
    while not over.wait(0.2):
        s2.append("metering", *(f"{number} l/s" for number in range(turn % 7 + 1)))
        s2.read("metering", seq_num=turn)
        turn += 1


def main() -> None:
    """Take a picture of each view, wide and narrow, light and dark, and write the page that shows them."""
    with busy_gateway() as gateway, Browser(browser_program()) as browser:
        tab = browser.tab("about:blank")
        time.sleep(_HISTORY_SECONDS)
        views = views_of(gateway)
        for view, shape, theme in itertools.product(views, _WIDTHS, THEMES):
            size = {"width": _WIDTHS[shape], "height": 900, "deviceScaleFactor": 1, "mobile": False}
            tab.call("Emulation.setDeviceMetricsOverride", size)
            tab.dark(theme == "dark")
            show(tab, gateway, view)
            file = PICTURES / picture(view.name, shape, theme)
            tab.screenshot(file)
            with Image.open(file) as taken:  # few colours: a third of the size
                taken.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
    GALLERY.write_text(gallery([view.name for view in views]))


def picture(view: str, shape: str, theme: str) -> str:
    """Return the file name of a picture."""
    return f"{view}-{shape}-{theme}.png"


def gallery(views: Sequence[str]) -> str:
    """Return the document that shows the pictures."""
    parts = ["# The page in pictures\n\nThe [page of the management listener](management.md#the-page), view by view.\n"]
    for view in views:
        parts.append(f"\n## {view.capitalize()}\n")
        for shape, theme in itertools.product(_WIDTHS, THEMES):
            parts.append(f"\n![{view}, {shape}, {theme}](pictures/{picture(view, shape, theme)})\n")
    return "".join(parts)


if __name__ == "__main__":
    main()
