// Open connections: searched and sorted by the gateway, with what may be done to each.

import { Poll, get } from "./api.js";
import { card, el, empty, field, put } from "./dom.js";
import { Table } from "./table.js";
import { age, count, size } from "./text.js";

const MOST = 200;

export function connectionsView(root, values, shell) {
  let search = values.search ?? "";
  let sort = values.sort ?? "-since";
  const none = empty("Loading…");
  const total = el("p", { class: "quiet", id: "connections-total", role: "status" });
  const input = el("input", { id: "search", type: "search", value: search, size: 32, autocomplete: "off", placeholder: "address, stream, listener …", oninput: () => {
    search = input.value;
    again();
  } });
  const table = new Table({
    label: "Table of connections", kind: "tall", id: (row) => row.connection,
    onSort: (by) => { sort = by; again(); },
    columns: [
      { title: "#", key: "connection", number: true, text: (row) => row.connection },
      { title: "Listener or back", key: "name", text: (row) => row.name },
      { title: "Protocol", key: "protocol", text: (row) => row.protocol + (row.tls ? " (TLS)" : "") },
      { title: "Peer", key: "client", mono: true, text: (row) => (row.side === "front" ? row.client : `to ${row.server}`) },
      { title: "Opened", key: "since", number: true, text: (row) => `${age(Date.now() - row.since)} ago` },
      { title: "Client sent", key: "client_bytes", number: true, text: (row) => size(row.client_bytes) },
      { title: "Server sent", key: "server_bytes", number: true, text: (row) => size(row.server_bytes) },
      { title: "Stream, route, identity", key: "streams", wide: true, text: about },
      { title: "Recorded by", text: (row) => row.recordings.join(", ") },
      { title: "", make: (row) => el("div", { class: "actions" },
        el("a", { href: `#/messages?filter=${encodeURIComponent(`connection=${row.connection}`)}`, "aria-label": `Messages of connection ${row.connection}` }, "Messages"),
        button("Record", "record", row, (one) => shell.act(one, "POST", "recordings", { connections: [row.connection] },
          (begun) => `Recording ${begun.id} of connection ${row.connection} has started.`).then(() => poll.now())),
        button("Close", "danger", row, (one) => shell.act(one, "POST", `connections/${row.connection}/close`, {},
          () => `Connection ${row.connection} is closed.`).then(() => poll.now()))) },
    ],
  });
  root.append(el("h1", { tabindex: -1 }, "Connections"), card("Open connections", [total],
    el("form", { class: "fields", role: "search", onsubmit: (event) => event.preventDefault() }, field("Search", input)),
    table.element, none));

  function again() {
    shell.replace("connections", { search, sort: sort === "-since" ? "" : sort });
    poll.now();
  }

  const poll = new Poll(2, async (signal) => {
    try {
      const answer = await get("connections", { search, sort, limit: MOST }, signal);
      const rows = answer.connections.filter((row) => row.protocol !== "management");
      const hidden = answer.connections.length - rows.length;
      table.update(rows);
      table.sorted(sort);
      none.hidden = rows.length > 0;
      put(none, search ? "No connection matches." : "No open connections.");
      put(total, answer.total - hidden > rows.length ? `${count(rows.length)} of ${count(answer.total - hidden)}` : `${count(rows.length)} open`);
    } catch (error) {
      if (!signal.aborted) {
        put(none, error.message);
      }
    }
  });
  return { close: () => poll.close() };
}

const button = (title, kind, row, press) => el("button", {
  class: `plain ${kind}`, type: "button", "aria-label": `${title} connection ${row.connection}`, onclick: (event) => press(event.currentTarget),
}, title);

function about(row) {
  const parts = [];
  for (const [what, names] of [["stream", row.streams], ["route", row.routes], ["identity", row.identities]]) {
    if (names.length) {
      const more = names.length > 3 ? ` and ${names.length - 3} more` : "";
      parts.push(`${what} ${names.slice(0, 3).join(", ")}${more}`);
    }
  }
  return parts.join("; ");
}
