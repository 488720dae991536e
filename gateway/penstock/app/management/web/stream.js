// One stream: its records from any position, a search in bodies and headers, what is appended, and one append.

import { Feed, change, get, query } from "./api.js";
import { block, card, el, empty, field, pairs, put } from "./dom.js";
import { Table } from "./table.js";
import { asJson, bytesOf, count, hexDump, inLine, plural, size, utc } from "./text.js";

const PAGE = 50;
const MOST_FOLLOWED = 500;
const HELP = "A position: start, tail, 42, -10 (before the tail), 10m (the last ten minutes), 1700000000000-3, or "
  + "2026-01-31T12:00:00Z.";

export function streamView(root, values, shell) {
  const { name = "", listener, text = "" } = values;
  const from = values.from || `-${PAGE}`;
  const stop = new AbortController();
  const asked = { stream: name, listener };
  let records = [];
  let answer = null;
  let feed = null;
  const none = empty("Loading…");
  const tail = el("p", { class: "quiet", id: "tail" });
  const scanned = el("p", { class: "quiet", id: "scanned", role: "status" });
  const position = el("input", { id: "from", value: from, size: 24, autocomplete: "off", "aria-describedby": "from-help" });
  const search = el("input", { id: "text", value: text, size: 24, autocomplete: "off", placeholder: "in bodies and headers" });
  const form = el("form", { class: "fields", role: "search", onsubmit: (event) => {
    event.preventDefault();
    shell.go("stream", { name, listener, from: position.value.trim(), text: search.value });
  } }, field("From", position), field("Search", search), el("button", {}, "Show"),
  el("p", { class: "quiet help", id: "from-help" }, HELP));
  const panel = el("section", { class: "inspector", "aria-label": "Record", hidden: true });
  const table = new Table({
    label: "Table of records", kind: "tall", id: (row) => row.seq_num,
    columns: [
      { title: "Number", number: true, make: (row) => el("button", {
        class: "link", type: "button", "aria-label": `Record ${row.seq_num}`, onclick: (event) => show(row, event.currentTarget),
      }, String(row.seq_num)) },
      { title: "Time (UTC)", mono: true, make: (row) => utc(row.timestamp).slice(0, 23) },
      { title: "Headers", wide: true, mono: true, make: (row) => row.headers && el("div", { class: "short" }, row.headers
        .map((one) => `${inLine(one, "name", 60)}=${inLine(one, "value", 60)}`).join(" ")) },
      { title: "Body", wide: true, mono: true, make: (row) => el("div", { class: "short" }, inLine(row)) },
      { title: "Size", number: true, make: (row) => size(row.body_bytes) },
    ],
  });
  const older = el("button", { type: "button", id: "older", onclick: () => before() }, "Older");
  const newer = el("button", { type: "button", id: "newer", onclick: () => load(String(answer.next)) }, "Newer");
  const follow = el("button", { type: "button", id: "follow", "aria-pressed": "false", onclick: () => (feed ? unfollow() : following()) }, "Follow");

  root.append(
    el("p", { class: "crumbs" }, el("a", { href: "#/streams" }, "Streams")),
    el("h1", { tabindex: -1 }, name || "Stream"),
    card("Records", [tail, el("div", { class: "apart" }, older, " ", newer, " ", follow)],
      form, scanned, el("div", { class: "split" }, table.element, panel), none),
    appendCard());

  function appendCard() {
    const body = el("textarea", { id: "body", rows: 4, cols: 60, spellcheck: "false" });
    const headers = el("textarea", { id: "headers", rows: 2, cols: 60, spellcheck: "false", placeholder: "name: value", "aria-describedby": "headers-help" });
    const button = el("button", {}, "Append");
    return card("Append a record", [], el("form", { class: "stacked", onsubmit: (event) => {
      event.preventDefault();
      append(button, body, headers);
    } }, field("Body", body), field("Headers", headers), el("p", { class: "quiet help", id: "headers-help" }, "One on a line."), button));
  }

  async function append(button, body, headers) {
    const lines = headers.value.split("\n").filter((line) => line.trim());
    const words = { body: body.value, headers: lines.map((line) => {
      const colon = line.indexOf(":");
      return { name: (colon < 0 ? line : line.slice(0, colon)).trim(), value: colon < 0 ? "" : line.slice(colon + 1).trim() };
    }) };
    button.disabled = true;
    try {
      const done = await change("POST", `records?${query(asked)}`, words);
      shell.notice(`Record ${done.seq_num} is appended.`, "done");
      body.value = "";
      if (!feed) {
        load(`-${PAGE}`);
      }
    } catch (error) {
      shell.notice(error.message, "failed");
    } finally {
      button.disabled = false;
    }
  }

  function draw() {
    table.update([...records].reverse()); // the newest first
    none.hidden = records.length > 0;
    put(none, text ? "No record matched." : feed ? "Waiting for records…" : "No records here.");
    older.disabled = feed !== null || !records.length || records[0].seq_num === 0;
    newer.disabled = feed !== null || !answer?.has_more;
    follow.setAttribute("aria-pressed", String(feed !== null));
    put(follow, feed ? "Stop following" : "Follow");
  }

  async function load(start) {
    try {
      answer = await get("records", { ...asked, from: start, text, count: PAGE }, stop.signal);
      records = answer.records;
      put(tail, `${count(answer.tail.seq_num)} is the next number`);
      put(scanned, text ? matched(answer) : "");
      draw();
    } catch (error) {
      if (!stop.signal.aborted) {
        records = [];
        draw();
        put(none, error.message);
      }
    }
  }

  function before() {
    load(String(Math.max(0, records[0].seq_num - PAGE)));
  }

  function following() {
    records = [];
    answer = null;
    feed = new Feed(`records/follow?${query({ ...asked, from: "-10", text })}`, {
      event: (_kind, record) => {
        records.push(record);
        records.splice(0, records.length - MOST_FOLLOWED);
      },
      batch: () => {
        if (records.length) {
          put(tail, `${count(records.at(-1).seq_num + 1)} is the next number`);
        }
        draw();
        table.element.scrollTop = 0;
      },
      lost: (error) => error && !(error instanceof TypeError) && unfollow(error.message),
    });
    draw();
  }

  function unfollow(why = "") {
    feed?.close();
    feed = null;
    if (why) {
      shell.notice(why, "failed");
    }
    load(records.length ? String(records[0].seq_num) : `-${PAGE}`);
  }

  async function show(row, opener) {
    const heading = el("h2", { tabindex: -1 }, `Record ${row.seq_num}`);
    const places = el("div", {}, empty("Loading its positions…"));
    const close = () => {
      panel.hidden = true;
      opener.focus();
    };
    const bytes = bytesOf(row);
    const json = row.body === undefined ? null : asJson(row.body);
    panel.onkeydown = (event) => event.key === "Escape" && close();
    panel.replaceChildren(
      el("div", { class: "bar" }, heading, el("button", { type: "button", class: "apart", onclick: close }, "Close")),
      places,
      el("details", { open: true }, el("summary", {}, "Headers"), (row.headers ?? []).length
        ? pairs(row.headers.map((one) => [inLine(one, "name"), inLine(one, "value", 2000)])) : empty("No headers.")),
      el("details", { open: true }, el("summary", {}, json ? "JSON" : "Body"), block("Body", json ?? row.body ?? hexDump(bytes))),
      el("details", {}, el("summary", {}, "Bytes"), block("Bytes in hexadecimal", hexDump(bytes))),
      bytes.length < row.body_bytes ? el("p", { class: "quiet" }, `The first ${size(bytes.length)} of ${size(row.body_bytes)} are shown.`) : "");
    panel.hidden = false;
    heading.focus();
    try {
      const found = await get("positions", { ...asked, seq_num: row.seq_num }, stop.signal);
      const { position: at, read_on: on } = found;
      places.replaceChildren(pairs([
        ["Sequence number", at.seq_num], ["Timestamp", `${at.timestamp} (${utc(at.timestamp)})`],
        ["S3P identifier", at.record_id ?? "unknown"], ["Byte offset", at.offset ?? "unknown"],
        ...Object.entries(on).filter(([, hint]) => hint).map(([protocol, hint]) => [`Read on over ${protocol}`, hintText(hint)]),
      ]));
    } catch (error) {
      places.replaceChildren(empty(error.message));
    }
  }

  load(from);
  return { close: () => { stop.abort(); feed?.close(); } };
}

const hintText = ({ listener, ...hint }) => `${listener}: ${Object.entries(hint).filter(([, value]) => value !== null)
  .map(([key, value]) => `${key}=${typeof value === "object" ? JSON.stringify(value) : value}`).join(" ")}`;

const matched = (answer) => `${count(answer.records.length)} of ${plural(answer.scanned, "record")} matched${
  answer.has_more ? "; press Newer to search on" : ""}.`;
