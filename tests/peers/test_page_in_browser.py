"""The page for operators in a real browser, by a test that clicks; and a browser that follows a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.browser import Browser, Tab, browser_program
from support.captures.recording import capture_files
from support.captures.traffic import until
from support.management import ask
from support.process import BASIN, CONFIG, GatewayProcess
from support.s2.client import S2Client
from support.s3p.client import S3PClient

pytestmark = pytest.mark.peer

RECORDER = """
[recorder]
directory = "{data}/recordings"
start = false
"""
HOSTILE = "<img src=x onerror=alert(1)>"
READY = "document.querySelector('#ready').dataset.state === 'ready'"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(browser_program()) as found:
        yield found


@pytest.fixture(scope="module")
def gateway(browser: Browser) -> Iterator[GatewayProcess]:
    with GatewayProcess(CONFIG + RECORDER) as process:
        yield process


@pytest.fixture
def tab(browser: Browser, gateway: GatewayProcess) -> Iterator[Tab]:
    """The page, which complained about nothing in the end."""
    opened = browser.tab(f"http://127.0.0.1:{gateway.management_port}/")
    opened.until(READY)
    yield opened
    assert opened.complaints() == []
    opened.close()


@pytest.fixture
def s2(gateway: GatewayProcess) -> S2Client:
    return S2Client(("127.0.0.1", gateway.s2_port), BASIN)


def row_of(stream: str) -> str:
    """The row of a connection that is about this stream, in JavaScript."""
    rows = "[...document.querySelectorAll('#connections tbody tr')]"
    return f"{rows}.find((row) => row.innerText.includes({json.dumps(stream)}))"


def test_a_click_closes_a_connection(tab: Tab, gateway: GatewayProcess) -> None:
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as client, S3PClient(("127.0.0.1", gateway.s3p_port)) as other:
        client.create("to-be-closed")
        other.create("to-be-kept")
        tab.until(f"{row_of('to-be-closed')} && {row_of('to-be-kept')}")
        number = tab.evaluate(f"{row_of('to-be-closed')}.dataset.connection")
        tab.click(f"#connections tr[data-connection='{number}'] button")
        tab.until(f"{row_of('to-be-closed')} === undefined")
        with pytest.raises((EOFError, ConnectionError)):
            client.append("to-be-closed", b"lost")
        other.append("to-be-kept", b"kept")
        assert f"Connection {number} is closed." in tab.text("#notice")


def test_clicks_start_and_stop_a_recording(tab: Tab, gateway: GatewayProcess, s2: S2Client) -> None:
    tab.click("#record-stream")
    tab.type(f"{BASIN}/recorded")
    tab.key("Enter", 13, "\r")
    tab.until("document.querySelector('#recordings li')")
    assert f"streams {BASIN}/recorded" in tab.text("#recordings")
    s2.append("recorded", "a body that is in the file")
    tab.until("document.querySelector('#recordings').innerText.includes('1 connection')")
    tab.click("#recordings li button")
    tab.until("!document.querySelector('#recordings li')")
    assert "is complete" in tab.text("#notice")
    assert ask(gateway.management_port, "/recordings")[1]["recordings"] == []
    (file,) = capture_files(gateway.data / "recordings")
    assert b"a body that is in the file" in file.read_bytes()


def test_decoded_messages_arrive_and_what_they_say_is_text(tab: Tab, s2: S2Client) -> None:
    s2.append(HOSTILE, f"{HOSTILE} in a body")
    tab.until("document.querySelector('#messages').innerText.includes(' in a body')")
    said = tab.text("#messages tbody")
    assert "AppendInput" in said and "AppendAck" in said and f"{BASIN}/{HOSTILE}" in said
    assert f"{HOSTILE} in a body" in said
    assert tab.evaluate("document.querySelectorAll('img').length") == 0
    tab.click("#filter")
    tab.type("ack")
    tab.until("[...document.querySelectorAll('#messages tbody tr')].some((row) => row.hidden)")
    assert "AppendInput" not in tab.text("#messages tbody") and "AppendAck" in tab.text("#messages tbody")


def test_a_pause_holds_messages_back(tab: Tab, s2: S2Client) -> None:
    tab.click("#pause")
    s2.append("paused", "held back")
    tab.until("Number(document.querySelector('#line-in').getAttribute('d')?.length) > 10")
    assert "held back" not in tab.text("#messages")
    tab.click("#pause")
    tab.until("document.querySelector('#messages').innerText.includes('held back')")
    tab.click("#clear")
    tab.until("document.querySelectorAll('#messages tbody tr').length === 0")


def test_the_log_level_is_chosen(tab: Tab, gateway: GatewayProcess) -> None:
    """By the keyboard alone."""
    tab.until("!document.querySelector('#log-label').hidden")
    tab.evaluate("document.querySelector('#log-level').focus()")
    tab.type("debug")
    tab.key("d", 68, "d")
    tab.until("document.querySelector('#notice').innerText.includes('level is now debug')")
    assert ask(gateway.management_port, "/log") == (200, {"level": "debug"})
    assert until(lambda: gateway.events("connection_opened")), "which is said at this level only"


def test_throughput_is_drawn(tab: Tab, s2: S2Client) -> None:
    for number in range(20):
        s2.append("drawn", f"{number} {'x' * 50_000}")
    tab.until("!document.querySelector('#rate-in').innerText.startsWith('0 ')")
    assert tab.evaluate("document.querySelector('#line-in').getAttribute('d')").startswith("M ")


def test_the_page_says_what_is_wrong_and_comes_back(tab: Tab, gateway: GatewayProcess) -> None:
    gateway.kill()
    tab.until("document.querySelector('#ready').dataset.state === 'lost'")
    gateway.start()
    tab.until(READY)
    S2Client(("127.0.0.1", gateway.s2_port), BASIN).append("again", "after the restart")
    tab.until("document.querySelector('#messages').innerText.includes('after the restart')")
    tab.forgive()  # the browser logs to the console that there was no answer


def test_a_page_asks_for_the_token(browser: Browser) -> None:
    config = CONFIG + '\n[management]\nbind = "127.0.0.1:0"\nauth_tokens = ["sesame"]\n'
    with GatewayProcess(config) as gateway:
        tab = browser.tab(f"http://127.0.0.1:{gateway.management_port}/")
        for token, next_state in (
            ("wrong", "document.querySelector('#notice').innerText.includes('not valid')"),
            ("sesame", READY),
        ):
            tab.until("!document.querySelector('#token-form').hidden")
            tab.click("#token")
            tab.type(token)
            tab.click("#token-form button")
            tab.until(next_state)
        tab.load(f"http://127.0.0.1:{gateway.management_port}/")
        tab.until(READY)
        assert tab.evaluate("sessionStorage.length") == 1 and tab.evaluate("localStorage.length") == 0
        tab.close()


@pytest.mark.parametrize("dark", [False, True])
def test_what_it_looks_like_can_be_read(tab: Tab, s2: S2Client, dark: bool) -> None:
    """Contrast as WCAG 2.1 asks for (1.4.3), of every text on the page, in both themes."""
    tab.dark(dark)
    s2.append("seen", "a record")
    with s2.events("seen", seq_num=0) as events:
        events.batch()
        tab.until("document.querySelectorAll('#messages tbody tr').length >= 4")
        tab.until("document.querySelectorAll('#connections tbody tr').length >= 1")
        assert tab.evaluate(CONTRAST) == []


CONTRAST = """(() => {
  const part = (value) => { const c = value / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const rgba = (text) => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const ground = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return rgba(getComputedStyle(document.documentElement).backgroundColor);
  };
  const bad = [];
  for (const one of document.querySelectorAll('body *')) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !one.checkVisibility() || one.disabled) continue;
    const [a, b] = [light(rgba(getComputedStyle(one).color)), light(ground(one))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${one.tagName}.${one.className} ${one.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return bad;
})()"""


# ---- EventSource -------------------------------------------------------------------------------------------------


FOLLOW = """(() => {
  window.got = []; window.opened = 0;
  const source = new EventSource('/v1/streams/followed/records?seq_num=0');
  source.addEventListener('open', () => { window.opened += 1; });
  source.addEventListener('batch', (event) => {
    for (const record of JSON.parse(event.data).records) window.got.push([record.seq_num, record.body]);
  });
})()"""


def test_an_event_source_follows_across_restarts(browser: Browser) -> None:
    """Each record once, in order: the browser's own EventSource, which tells the last identifier that it saw. Once the
    gateway drains, and once it is killed."""
    wanted: list[list[object]] = []
    with GatewayProcess(CONFIG + "[drain]\ngrace_seconds = 0.2\n") as gateway:
        client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)

        def append(count: int) -> None:
            first = len(wanted)
            bodies = [f"record {first + number}" for number in range(count)]
            client.append("followed", *bodies)
            wanted.extend([first + number, body] for number, body in enumerate(bodies))

        append(5)
        # EventSource cannot send headers: the host names the basin.
        tab = browser.tab(f"http://{BASIN}.localhost:{gateway.s2_port}/health")
        tab.evaluate(FOLLOW)
        tab.until("window.got.length === 5")
        for kill in (False, True):
            append(3)
            gateway.restart(kill=kill)
            append(4)
            tab.until(f"window.got.length >= {len(wanted)}")
        append(2)
        tab.until(f"window.got.length >= {len(wanted)}")
        assert tab.evaluate("window.got") == wanted
        assert tab.evaluate("window.opened") == 3
        tab.close()
