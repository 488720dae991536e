"""The page for operators in a real browser, by tests that click and type; and a browser that follows a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.browser import Browser, Tab, browser_program
from support.captures.recording import capture_files
from support.captures.traffic import until
from support.management import ask
from support.page_views import AXE, PAGE_CONFIG, READY, busy_gateway, show, views_of, violations
from support.process import BASIN, CONFIG, GatewayProcess
from support.s2.client import S2Client
from support.s3p.client import S3PClient

pytestmark = pytest.mark.peer

HOSTILE = "<img src=x onerror=alert(1)>"
VIEWS = (
    *("overview", "streams", "stream", "record", "messages", "message"),
    *("connections", "recordings", "recording", "comparison", "routes"),
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(browser_program()) as found:
        yield found


@pytest.fixture(scope="module")
def gateway(browser: Browser) -> Iterator[GatewayProcess]:
    with GatewayProcess(PAGE_CONFIG) as process:
        yield process


@pytest.fixture(scope="module")
def busy(browser: Browser) -> Iterator[GatewayProcess]:
    with busy_gateway() as process:
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


def go(tab: Tab, route: str) -> None:
    """Go to a view by its address."""
    tab.evaluate(f"location.hash = {json.dumps('#/' + route)}")
    tab.until("document.querySelector('#view h1') !== null")


def visit(tab: Tab, link: str) -> None:
    """Click a link of the navigation."""
    tab.click(f"#nav a[href='#/{link}']")
    tab.until(f"document.querySelector('#nav a[aria-current]').getAttribute('href') === '#/{link}'")


def says(tab: Tab, selector: str, text: str) -> None:
    """Wait for a text in an element."""
    tab.until(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})")


def fill(tab: Tab, selector: str, text: str) -> None:
    """Replace the text of a field."""
    tab.click(selector)
    tab.evaluate(f"document.querySelector({json.dumps(selector)}).select()")
    tab.type(text)


def enter(tab: Tab) -> None:
    tab.key("Enter", 13, "\r")


def row_of(text: str) -> str:
    """The table row with this text, in JavaScript."""
    return f"[...document.querySelectorAll('#view tbody tr')].find((row) => row.innerText.includes({json.dumps(text)}))"


def press(tab: Tab, row: str, button: str) -> None:
    """Click the button or link with this text, or of this kind, in the row with that text."""
    found = f"{row_of(row)}?.querySelector({json.dumps(button)})"
    tab.until(f"{found} && !{found}.disabled")
    tab.evaluate(f"{found}.setAttribute('id', 'to-be-pressed')")
    tab.click("#to-be-pressed")
    tab.evaluate("document.querySelector('#to-be-pressed')?.removeAttribute('id')")


# ---- streams -------------------------------------------------------------------------------------------------------


def test_a_stream_is_found_searched_and_appended_to(tab: Tab, gateway: GatewayProcess, s2: S2Client) -> None:
    s2.append("browsed", *(f"record {number}" for number in range(120)))
    visit(tab, "streams")
    fill(tab, "#prefix", "brow")
    enter(tab)
    press(tab, f"{BASIN}/browsed", "a")
    says(tab, "h1", f"{BASIN}/browsed")
    says(tab, "#view tbody", "record 119")
    assert "record 69" not in tab.text("#view tbody")
    assert "record 119" in tab.text("#view tbody tr"), "the newest comes first"
    tab.click("#older")
    says(tab, "#view tbody", "record 20")
    fill(tab, "#from", "start")
    fill(tab, "#text", "record 11")
    enter(tab)
    says(tab, "#scanned", "11 of 120 records matched.")
    assert "text=record+11" in tab.evaluate("location.hash"), "the address can be shared"
    fill(tab, "#body", "a record of the page")
    fill(tab, "#headers", "kind: test")
    tab.click("#view section:last-of-type button")
    says(tab, "#notice", "Record 120 is appended.")
    assert s2.read("browsed", seq_num=120).json()["records"][0]["body"] == "a record of the page"


def test_a_record_is_opened_in_all_positions(tab: Tab, s2: S2Client) -> None:
    s2.append("opened", '{"a": [1, 2]}')
    go(tab, f"stream?name={BASIN}/opened")
    press(tab, "[1, 2]", "button")
    says(tab, ".inspector", "S3P identifier")
    says(tab, ".inspector", "Read on over s3p")
    assert '"a": [\n    1,' in tab.text(".inspector pre")
    assert tab.evaluate("document.activeElement.innerText") == "Record 0"
    tab.key("Escape", 27)
    tab.until("document.querySelector('.inspector').hidden")
    assert tab.evaluate("document.activeElement.innerText") == "0", "the focus is back where it was"


def test_a_stream_is_followed(tab: Tab, s2: S2Client) -> None:
    s2.append("followed-live", "before")
    go(tab, f"stream?name={BASIN}/followed-live")
    says(tab, "#view tbody", "before")
    tab.click("#follow")
    says(tab, "#view tbody", "before")
    s2.append("followed-live", f"{HOSTILE} comes while it is followed")
    says(tab, "#view tbody tr", f"{HOSTILE} comes while")
    assert tab.evaluate("document.querySelectorAll('img').length") == 0
    tab.click("#follow")
    tab.until("document.querySelector('#follow').getAttribute('aria-pressed') === 'false'")


def test_a_wrong_position_is_explained(tab: Tab, s2: S2Client) -> None:
    s2.append("positions", "x")
    go(tab, f"stream?name={BASIN}/positions&from=yesterday")
    says(tab, "#view", "'yesterday' is no position")
    tab.forgive()


# ---- messages ------------------------------------------------------------------------------------------------------


def test_a_message_is_shown_beside_its_answer(tab: Tab, s2: S2Client) -> None:
    visit(tab, "messages")
    s2.append(HOSTILE, f"{HOSTILE} in a body")
    says(tab, "#view tbody", " in a body")
    assert tab.evaluate("document.querySelectorAll('img').length") == 0
    press(tab, "AppendInput", "button")
    says(tab, "[data-half=Request]", "AppendInput")
    says(tab, "[data-half=Request]", f"{HOSTILE} in a body")
    tab.evaluate("document.querySelectorAll('.inspector details').forEach((one) => { one.open = true; })")
    assert '"kind": "AppendInput"' in tab.text("[data-half=Request]"), "as JSON"
    assert "|" in tab.text("[data-half=Answer]"), "in hexadecimal"
    tab.key("Escape", 27)
    tab.until("document.querySelector('.inspector').hidden")
    press(tab, "AppendAck", "button")
    says(tab, "[data-half=Request]", "AppendInput")


def test_a_filter_is_that_of_the_command_line(tab: Tab, s2: S2Client) -> None:
    visit(tab, "messages")
    fill(tab, "#filter", f"kind=*Input stream={BASIN}/chosen")
    enter(tab)
    tab.until("location.hash.includes('filter=')")
    says(tab, "#view", "No message matched this filter yet.")

    def heard() -> bool:
        s2.append("left-out", "other")
        s2.append("chosen", "wanted")
        return bool(tab.evaluate("document.querySelectorAll('#view tbody tr').length > 0"))

    assert until(heard)
    said = tab.text("#view tbody")
    assert "AppendInput" in said and "wanted" in said and "AppendAck" not in said and "other" not in said


def test_a_wrong_filter_is_explained(tab: Tab) -> None:
    go(tab, "messages?filter=colour%3Dred")
    says(tab, "#filter-wrong", "'colour=red': expected NAME=VALUE with one of connection, protocol, stream")
    tab.forgive()


def test_a_pause_holds_messages_back(tab: Tab, s2: S2Client) -> None:
    visit(tab, "messages")
    tab.click("#pause")
    s2.append("paused", "held back")
    visit(tab, "")
    visit(tab, "messages")
    says(tab, "#view tbody", "held back")
    tab.click("#pause")
    s2.append("paused", "later")
    says(tab, "#pause", "Resume")
    assert "later" not in tab.text("#view tbody")
    tab.click("#pause")
    says(tab, "#view tbody", "later")
    tab.click("#clear")
    tab.until("document.querySelectorAll('#view tbody tr').length === 0")


# ---- connections and recordings ------------------------------------------------------------------------------------


def test_connections_are_searched_sorted_recorded_and_closed(tab: Tab, gateway: GatewayProcess) -> None:
    visit(tab, "connections")
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as client, S3PClient(("127.0.0.1", gateway.s3p_port)) as other:
        client.create("to-be-closed")
        other.create("to-be-kept")
        tab.until(f"{row_of('to-be-closed')} && {row_of('to-be-kept')}")
        tab.click("th:nth-child(1) button")
        tab.until("document.querySelector('th:nth-child(1)').getAttribute('aria-sort') === 'descending'")
        tab.click("th:nth-child(1) button")
        tab.until("document.querySelector('th:nth-child(1)').getAttribute('aria-sort') === 'ascending'")
        tab.until(f"{row_of('to-be-closed')}.rowIndex < {row_of('to-be-kept')}.rowIndex")
        fill(tab, "#search", "to-be-closed")
        tab.until(f"{row_of('to-be-kept')} === undefined && {row_of('to-be-closed')}")
        number = tab.evaluate(f"{row_of('to-be-closed')}.dataset.id")
        press(tab, "to-be-closed", "button.record")
        says(tab, "#notice", f"of connection {number} has started.")
        (running,) = ask(gateway.management_port, "/recordings")[1]["recordings"]
        assert running["selection"] == {"connections": [int(number)]}
        ask(gateway.management_port, f"/recordings/{running['id']}/stop", {})
        press(tab, "to-be-closed", "button.danger")
        tab.until(f"{row_of('to-be-closed')} === undefined")
        with pytest.raises((EOFError, ConnectionError)):
            client.append("to-be-closed", b"lost")
        other.append("to-be-kept", b"kept")


def test_recordings_are_started_opened_and_compared(tab: Tab, gateway: GatewayProcess, s2: S2Client) -> None:
    before = {file.name for file in capture_files(gateway.data / "recordings")}
    for body in ("a body that is in the file", "another body"):
        visit(tab, "recordings")
        fill(tab, "#selection", f"stream={BASIN}/recorded listener=s2")
        enter(tab)
        says(tab, "#view section tbody", f"listeners s2, streams {BASIN}/recorded")
        s2.append("recorded", body)
        says(tab, "#view section tbody", "recording")
        press(tab, f"streams {BASIN}/recorded", "button")
        says(tab, "#notice", "is complete")
        visit(tab, "")
    one, other = sorted({file.name for file in capture_files(gateway.data / "recordings")} - before)
    assert b"a body that is in the file" in (gateway.data / "recordings" / one).read_bytes()
    visit(tab, "recordings")
    press(tab, one, "a")
    says(tab, "#view tbody", "a body that is in the file")
    fill(tab, "#filter", "kind=AppendAck")
    enter(tab)
    says(tab, "#capture-status", "1 message")
    press(tab, "AppendAck", "button")
    says(tab, "[data-half=Request]", "AppendInput")
    visit(tab, "recordings")
    press(tab, one, "input")
    press(tab, other, "input")
    tab.click("#compare")
    says(tab, "#verdict", "Records differ in 1 of 1 streams.")
    says(tab, "#result", f"{BASIN}/recorded")
    fetch = f"fetch('captures/{one}').then((answer) => answer.arrayBuffer()).then((all) => all.byteLength)"
    fetched = tab.evaluate(fetch)
    assert fetched == (gateway.data / "recordings" / one).stat().st_size


# ---- the whole page ------------------------------------------------------------------------------------------------


def test_the_log_level_is_chosen(tab: Tab, gateway: GatewayProcess) -> None:
    """By the keyboard alone."""
    tab.until("document.querySelector('#log-level').value === 'info'")
    tab.evaluate("document.querySelector('#log-level').focus()")
    tab.type("debug")
    tab.key("d", 68, "d")
    says(tab, "#notice", "level is now debug")
    assert ask(gateway.management_port, "/log") == (200, {"level": "debug"})
    assert until(lambda: gateway.events("connection_opened")), "which is said at this level only"


def test_throughput_is_drawn(tab: Tab, s2: S2Client) -> None:
    for number in range(20):
        s2.append("drawn", f"{number} {'x' * 50_000}")
    tab.until("document.querySelector('#throughput .line.in').getAttribute('d')?.startsWith('M ')")
    label = tab.evaluate("document.querySelector('#throughput svg').getAttribute('aria-label')")
    assert label.startswith("Bytes a second. from clients: ")
    says(tab, "#process", "Uptime")


def test_everything_is_reached_by_the_keyboard(tab: Tab, s2: S2Client) -> None:
    s2.append("keyed", "by keys")
    tab.key("Tab", 9)
    assert tab.evaluate("document.activeElement.className") == "skip"
    for _ in range(2):
        tab.key("Tab", 9)
    assert tab.evaluate("document.activeElement.innerText") == "Streams"
    enter(tab)
    says(tab, "h1", "Streams")
    assert tab.evaluate("document.activeElement.tagName") == "H1", "the focus goes to what was opened"
    for wanted, keys in ((f"{BASIN}/keyed", 40), ("Record 0", 40)):
        for _ in range(keys):
            tab.key("Tab", 9)
            name = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText"
            if tab.evaluate(name) == wanted:
                break
        assert tab.evaluate(name) == wanted
        enter(tab)
        tab.until("document.querySelector('#view tbody button.link') !== null")
    says(tab, ".inspector", "by keys")
    assert tab.evaluate("document.activeElement.innerText") == "Record 0"


def test_an_address_can_be_reloaded(tab: Tab, s2: S2Client) -> None:
    s2.append("shared", "one", "two", "three")
    go(tab, f"stream?name={BASIN}/shared&from=1")
    says(tab, "#view tbody", "three")
    tab.evaluate("location.reload()")
    tab.until(READY)
    says(tab, "#view tbody", "three")
    assert "one" not in tab.text("#view tbody")


def test_the_page_says_what_is_wrong_and_comes_back(tab: Tab, gateway: GatewayProcess) -> None:
    visit(tab, "messages")
    gateway.kill()
    tab.until("document.querySelector('#ready').dataset.state === 'lost'")
    gateway.start()
    tab.until(READY)
    S2Client(("127.0.0.1", gateway.s2_port), BASIN).append("again", "after the restart")
    says(tab, "#view tbody", "after the restart")
    tab.forgive()  # the browser logs to the console that there was no answer


def test_a_page_asks_for_the_token(browser: Browser) -> None:
    config = CONFIG + '\n[management]\nbind = "127.0.0.1:0"\nauth_tokens = ["sesame"]\nread_tokens = ["look"]\n'
    with GatewayProcess(config) as gateway:
        tab = browser.tab(f"http://127.0.0.1:{gateway.management_port}/")
        for token, next_state in (
            ("wrong", "document.querySelector('#notice').innerText.includes('not valid')"),
            ("look", READY),
        ):
            tab.until("!document.querySelector('#token-form').hidden")
            tab.click("#token")
            tab.type(token)
            tab.click("#token-form button")
            tab.until(next_state)
        tab.load(f"http://127.0.0.1:{gateway.management_port}/")
        tab.until(READY)
        assert tab.evaluate("sessionStorage.length") == 1 and tab.evaluate("localStorage.length") == 0
        says(tab, "#process", "Version")
        tab.evaluate("document.querySelector('#log-level').value = 'error'")
        tab.evaluate("document.querySelector('#log-level').dispatchEvent(new Event('change'))")
        says(tab, "#notice", "this token permits only looking")
        tab.close()


@pytest.mark.parametrize("name", VIEWS)
def test_axe_finds_nothing(browser: Browser, busy: GatewayProcess, name: str) -> None:
    """WCAG 2.2 and the best practices of axe, in both themes; and no view is wider than a phone."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci --prefix tests/judges")
    (view,) = [one for one in views_of(busy) if one.name == name]
    tab = browser.tab("about:blank")
    for dark in (False, True):
        tab.dark(dark)
        show(tab, busy, view)
        assert violations(tab)[1] == []
    phone = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    tab.call("Emulation.setDeviceMetricsOverride", phone)
    show(tab, busy, view)
    assert violations(tab)[1] == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.close()


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
