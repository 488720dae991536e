// The streams that exist, as the clients of a listener see them.

import { get, query } from "./api.js";
import { card, el, empty, field } from "./dom.js";
import { Table } from "./table.js";
import { utc } from "./text.js";

const PAGE = 100;

export function streamsView(root, values, shell) {
  const stop = new AbortController();
  let found = [];
  const none = empty("Loading…");
  const input = el("input", { id: "prefix", value: values.prefix ?? "", size: 28, autocomplete: "off", placeholder: "all" });
  const basin = el("input", { id: "basin", value: values.basin ?? "", size: 18, autocomplete: "off", placeholder: "all" });
  const listener = el("select", { id: "listener" });
  const form = el("form", { class: "fields", role: "search", onsubmit: (event) => {
    event.preventDefault();
    shell.go("streams", { basin: basin.value.trim(), prefix: input.value.trim(), listener: listener.value });
  } }, field("Basin", basin), field("Name begins with", input), field("As seen by", listener), el("button", {}, "Search"));
  const table = new Table({
    label: "Table of streams", kind: "tall", id: (row) => row.stream,
    columns: [
      { title: "Stream", wide: true, make: (row) => el("a", { href: `#/stream?${query({ name: row.stream, listener: values.listener })}` }, row.stream) },
      { title: "Created (UTC)", mono: true, text: (row) => (row.created_at ? utc(row.created_at).slice(0, 19) : "unknown") },
      { title: "State", text: (row) => (row.deleted_at ? "being deleted" : "") },
    ],
  });
  const more = el("button", { type: "button", hidden: true, onclick: () => load(found.at(-1).stream) }, "Show more");
  const missing = el("div", { role: "alert" });
  root.append(el("h1", { tabindex: -1 }, "Streams"), card("Browse", [], form, missing, table.element, none, more));

  async function load(after) {
    try {
      const answer = await get("streams", { ...values, after, limit: PAGE }, stop.signal);
      found = [...found, ...answer.streams];
      table.update(found);
      none.hidden = found.length > 0 || answer.failed.length > 0;
      missing.replaceChildren(...answer.failed.map(({ back, reason }) => el("p", { class: "wrong" }, `The streams of back ${back} are missing: ${reason}`)));
      none.textContent = values.prefix || values.basin ? "No stream has such a name." : "No streams yet. The first append to a stream may create it, or penstock create.";
      more.hidden = !answer.has_more;
    } catch (error) {
      none.textContent = stop.signal.aborted ? "" : error.message;
    }
  }

  async function listeners() {
    const status = await get("status", {}, stop.signal).catch(() => ({ listeners: [] }));
    listener.append(...status.listeners.map(({ name }, index) => el("option", { value: index ? name : "", selected: name === values.listener }, name)));
  }

  load("");
  listeners();
  return { close: () => stop.abort() };
}
