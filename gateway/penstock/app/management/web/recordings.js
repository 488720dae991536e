// Running recordings, and the captures in the recorder's directory: start, stop, download, open, choose two to compare.

import { Poll, download, events, get, hasToken, query } from "./api.js";
import { card, el, empty, field, put } from "./dom.js";
import { Messages } from "./inspector.js";
import { FILTER_HELP } from "./messages.js";
import { Table } from "./table.js";
import { count, plural, size, utc } from "./text.js";

const HELP = "Such as stream=penstock/orders* listener=s2. Names: connection, stream, route, identity, listener, back, "
  + "protocol, peer. Empty: everything.";

export function recordingsView(root, _values, shell) {
  const chosen = new Set();
  const none = empty("No recordings are running.");
  const noFiles = empty("Loading…");
  const input = el("input", { id: "selection", size: 44, autocomplete: "off", spellcheck: "false", "aria-describedby": "selection-help", placeholder: "everything" });
  const start = el("button", {}, "Record");
  const form = el("form", { class: "fields", id: "record-form", onsubmit: (event) => {
    event.preventDefault();
    const expression = input.value.trim();
    shell.act(start, "POST", "recordings", expression ? { expression } : {}, (begun) => `Recording ${begun.id} has started.`)
      .then(() => poll.now());
  } }, field("Connections", input), start, el("p", { class: "quiet help", id: "selection-help" }, HELP));
  const running = new Table({
    label: "Table of running recordings", id: (row) => row.id,
    columns: [
      { title: "#", number: true, text: (row) => row.id },
      { title: "Records", wide: true, text: selectionText },
      { title: "State", text: (row) => (row.kind === "file" ? row.state : `${row.state} (live)`) },
      { title: "Connections", number: true, text: (row) => count(row.conversations) },
      { title: "Size", number: true, text: (row) => size(row.bytes) },
      { title: "Problems", text: (row) => [row.dropped && `${row.dropped} dropped`, row.last_error].filter(Boolean).join("; ") },
      { title: "", make: (row) => el("button", { class: "plain", type: "button", "aria-label": `Stop recording ${row.id}`,
        onclick: (event) => shell.act(event.currentTarget, "POST", `recordings/${row.id}/stop`, {},
          (ended) => `Recording ${ended.id} is complete: ${size(ended.bytes)}.`).then(() => poll.now()) }, "Stop") },
    ],
  });
  const compare = el("button", { type: "button", id: "compare", disabled: true, onclick: () => {
    const [a, b] = [...chosen].sort();
    shell.go("compare", { a, b });
  } }, "Compare two");
  const files = new Table({
    label: "Table of captures", kind: "tall", id: (row) => row.name,
    columns: [
      { title: "Choose", make: (row) => el("input", { type: "checkbox", "aria-label": `Choose ${row.name}`, onchange: (event) => {
        chosen[event.target.checked ? "add" : "delete"](row.name);
        compare.disabled = chosen.size !== 2;
      } }) },
      { title: "Capture", wide: true, make: (row) => el("a", { href: `#/recording?${query({ name: row.name })}` }, row.name) },
      { title: "Size", number: true, text: (row) => size(row.bytes) },
      { title: "Changed (UTC)", mono: true, text: (row) => utc(row.modified).slice(0, 19) },
      { title: "Written by", text: (row) => (row.recording === null ? "" : `recording ${row.recording}`) },
      { title: "", make: (row) => downloadLink(row.name, shell) },
    ],
  });
  root.append(el("h1", { tabindex: -1 }, "Recordings"),
    card("Running", [], form, running.element, none),
    card("Captures", [el("div", { class: "apart" }, compare)], files.element, noFiles));

  const poll = new Poll(3, async (signal) => {
    try {
      const { recordings } = await get("recordings", {}, signal);
      running.update(recordings);
      none.hidden = recordings.length > 0;
      const { captures, has_more: more } = await get("captures", {}, signal);
      files.update(captures);
      noFiles.hidden = captures.length > 0 && !more;
      put(noFiles, more ? "More captures are in the directory." : "No captures yet.");
    } catch (error) {
      if (!signal.aborted) {
        put(noFiles, error.message);
      }
    }
  });
  return { close: () => poll.close() };
}

const selectionText = (row) => Object.entries(row.selection).map(([key, values]) => `${key} ${values.join(" or ")}`).join(", ") || "everything";

function downloadLink(name, shell) {
  const path = `captures/${encodeURIComponent(name)}`;
  const label = `Download ${name}`;
  return hasToken()
    ? el("button", { class: "plain", type: "button", "aria-label": label, onclick: () => download(path, name).catch((error) => shell.notice(error.message, "failed")) }, "Download")
    : el("a", { href: path, download: name, "aria-label": label }, "Download");
}

// One capture: its messages, page by page.
export function captureView(root, values, shell) {
  const { name = "", filter = "" } = values;
  const stop = new AbortController();
  let messages = [];
  let cursor = null;
  const none = empty("Reading…");
  const status = el("p", { class: "quiet", role: "status", id: "capture-status" });
  const input = el("input", { id: "filter", value: filter, size: 44, autocomplete: "off", spellcheck: "false", "aria-describedby": "filter-help", placeholder: "all messages" });
  const form = el("form", { class: "fields", role: "search", onsubmit: (event) => {
    event.preventDefault();
    shell.go("recording", { name, filter: input.value.trim() });
  } }, field("Filter", input), el("button", {}, "Apply"), el("p", { class: "quiet help", id: "filter-help" }, FILTER_HELP));
  const table = new Messages("Table of recorded messages", (wanted) => `#/recording?${query({ name, filter: wanted })}`);
  const more = el("button", { type: "button", id: "more", hidden: true, onclick: () => load() }, "Show more");
  root.append(el("p", { class: "crumbs" }, el("a", { href: "#/recordings" }, "Recordings")),
    el("h1", { tabindex: -1 }, name || "Recording"),
    card("Recorded messages", [status, el("div", { class: "apart" }, downloadLink(name, shell))], form, table.element, none, more));

  async function load() {
    more.disabled = true;
    put(status, "reading…");
    try {
      let read = "";
      await events(`captures/${encodeURIComponent(name)}/messages`, { filter, cursor, limit: 200 }, stop.signal, {
        message: (message) => messages.push(message),
        progress: ({ read: bytes, size: all }) => { read = all ? `${Math.min(100, Math.floor(100 * bytes / all))} % read` : `${size(bytes)} read`; },
        failed: ({ message }) => { throw new Error(message); },
        end: (end) => {
          cursor = end.next_cursor;
          read = [...(end.complete ? [] : ["not all of it was read in ten minutes"]), ...end.warnings].join("; ");
          more.hidden = cursor === null;
          put(none, filter ? "No message matches this filter." : "The capture has no messages.");
        },
        batch: () => {
          table.update(messages);
          none.hidden = messages.length > 0;
          put(status, `${plural(messages.length, "message")}${cursor || more.disabled ? " so far" : ""}${read ? `; ${read}` : ""}`);
        },
      });
      put(status, status.textContent.replace(cursor ? "" : " so far", ""));
    } catch (error) {
      if (!stop.signal.aborted) {
        put(status, messages.length ? `${plural(messages.length, "message")} so far; ${error.message}` : "");
        put(none, error.message);
      }
    } finally {
      more.disabled = false;
    }
  }

  load();
  return { close: () => stop.abort() };
}
