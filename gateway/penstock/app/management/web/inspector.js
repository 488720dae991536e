// Messages in a table, and everything about one of them beside its request or its answer.

import { block, el, empty, pairs, put } from "./dom.js";
import { Table } from "./table.js";
import { asJson, bytesOf, duration, hexDump, inLine, size } from "./text.js";

const HIDDEN = new Set(["headers", "meaning", "clause"]);

const isProblem = (message) => message.type === "problem";
const kindOf = (message) => (isProblem(message) ? "problem" : message.kind);
const failureOf = (message) => (isProblem(message)
  ? `byte ${message.offset}: ${message.rule}${message.clause ? ` (${message.clause})` : ""}` : message.failure ?? "");
const fromClient = (message) => message.sender === "client";
const idOf = (message) => `${message.connection} ${message.sender} ${message.offset} ${message.time} ${kindOf(message)}`;

const valueText = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value));
const fieldsText = (fields) => Object.entries(fields ?? {})
  .filter(([name, value]) => !HIDDEN.has(name) && value !== null && value !== "")
  .map(([name, value]) => `${name}=${valueText(value)}`).join(" ");

// Whether `answer` answers `request`.
const answers = (answer, request) => answer.asked !== undefined && answer.connection === request.connection
  && answer.asked.offset === request.offset && answer.asked.time === request.time;

// A table of messages. `opened(message)`: a message was chosen.
export class Messages {
  #table;
  #inspector;

  constructor(label, found) {
    this.#inspector = new Inspector(() => this.#table.rows, found);
    this.#table = new Table({
      label, kind: "tall messages", id: idOf, rowClass: (row) => (failureOf(row) ? "failed" : ""),
      columns: [
        { title: "Time (UTC)", mono: true, make: (row) => row.time.slice(11, 23) },
        { title: "#", number: true, make: (row) => String(row.connection) },
        { title: "From", make: (row) => direction(row) },
        { title: "Layer", make: (row) => row.layer ?? "" },
        { title: "Message", make: (row) => el("button", {
          class: "link", type: "button", onclick: (event) => this.#inspector.open(row, event.currentTarget),
        }, kindOf(row)) },
        { title: "Stream", make: (row) => el("span", { class: "short one", title: row.stream ?? "" }, row.stream ?? "") },
        { title: "Size", number: true, make: (row) => (row.length ? size(row.length) : "") },
        { title: "Details", wide: true, mono: true, make: (row) => details(row) },
      ],
    });
    this.table = this.#table.element;
    this.element = el("div", { class: "split" }, this.#table.element, this.#inspector.element);
  }

  update(messages) {
    this.#table.update(messages);
  }
}

const direction = (row) => [
  el("span", { class: `way ${row.sender}`, "aria-hidden": "true" }, fromClient(row) ? "→" : "←"),
  el("span", { class: "unseen" }, fromClient(row) ? "client" : "server")];

function details(row) {
  const bodies = (row.bodies ?? []).slice(0, 3).map((record) => el("span", { class: "body" }, inLine(record, "body", 80)));
  const more = (row.records ?? 0) > bodies.length ? [`and ${row.records - bodies.length} more records `] : [];
  const rest = [failureOf(row), fieldsText(row.fields), row.state, row.answer_ns && `after ${duration(row.answer_ns)}`];
  return el("div", { class: "short" }, ...bodies, ...more, rest.filter(Boolean).join(" "));
}

// Everything about a message. `messages()`: those among which the other half of an exchange is looked for.
class Inspector {
  #messages;
  #found;
  #opener = null;
  #heading = el("h2", { tabindex: -1 });
  #body = el("div", { class: "halves" });

  constructor(messages, found) {
    this.#messages = messages;
    this.#found = found;
    this.element = el("section", { class: "inspector", "aria-label": "Message", hidden: true, onkeydown: (event) => {
      if (event.key === "Escape") {
        this.close();
      }
    } }, el("div", { class: "bar" }, this.#heading,
      el("button", { type: "button", class: "apart", onclick: () => this.close() }, "Close")), this.#body);
  }

  open(message, opener) {
    this.#opener = opener;
    const request = fromClient(message) ? message : message.asked;
    const found = this.#messages().filter((other) => answers(other, message));
    const answer = fromClient(message) ? found.find((other) => other.layer === message.layer) ?? found[0] : message;
    put(this.#heading, `${kindOf(message)} on connection ${message.connection}`);
    this.#body.replaceChildren(
      half(isProblem(message) ? "Problem" : "Request", isProblem(message) ? message : request, this.#elsewhere(message)),
      ...(isProblem(message) ? [] : [half("Answer", answer, this.#elsewhere(message))]));
    this.element.hidden = false;
    this.#heading.focus();
    this.element.scrollIntoView({ block: "nearest" });
  }

  close() {
    this.element.hidden = true;
    if (this.#opener?.isConnected) {
      this.#opener.focus();
    }
  }

  #elsewhere(message) {
    const exchange = message.exchange === undefined ? "" : ` exchange=${message.exchange}`;
    const link = el("a", { href: this.#found(`connection=${message.connection}${exchange}`) }, "Show only this exchange");
    return ["It is not among these messages. ", link];
  }
}

function half(title, message, elsewhere) {
  if (message === undefined) {
    return el("div", { role: "group", "aria-label": title }, el("h3", {}, title), empty("", ...elsewhere));
  }
  const fields = Object.entries(message.fields ?? {}).filter(([name]) => !HIDDEN.has(name));
  const headers = message.fields?.headers ?? [];
  const { dump, bodies, asked, ...whole } = message;
  return el("div", { role: "group", "aria-label": title, "data-half": title },
    el("h3", {}, title, " ", el("span", { class: "quiet" }, `${message.layer ?? ""} ${kindOf(message)}`)),
    failureOf(message) && el("p", { class: "wrong" }, failureOf(message)),
    message.fields?.meaning && el("p", {}, `It means: ${message.fields.meaning}`),
    (message.clause || message.fields?.clause) && el("p", { class: "clause" }, `Clause: ${message.clause || message.fields.clause}`),
    pairs([
      ["Time", message.time], ["Stream", message.stream], ["Exchange", message.exchange], ["State", message.state],
      ["Bytes", message.length && `${message.length} at offset ${message.offset}`],
      ["Answered after", message.answer_ns && duration(message.answer_ns)],
    ]),
    part("Fields", fields.length, () => pairs(fields.map(([name, value]) => [name, valueText(value)])), true),
    part("Headers", headers.length, () => block("Headers", headers.map((one) => (Array.isArray(one) ? one.join(": ") : valueText(one))).join("\n"))),
    part("Records", (bodies ?? []).length, () => el("div", {}, ...bodies.map((record) => recordText(record))), true),
    part("Bytes", (dump ?? []).length, () => block("Bytes in hexadecimal", dump.join("\n"))),
    part("JSON", 1, () => block("Message as JSON", JSON.stringify(whole, null, 2))));
}

function part(title, amount, content, open = false) {
  return amount ? el("details", { open }, el("summary", {}, title), content()) : null;
}

// A record of a message, with its body as text, as indented JSON, or in hexadecimal.
function recordText(record) {
  const places = [record.seq_num !== undefined && `number ${record.seq_num}`, record.record_id, record.offset !== undefined && `byte ${record.offset}`];
  const text = record.body;
  return el("div", { class: "record" },
    el("p", { class: "quiet" }, places.filter(Boolean).join(", ")),
    ...(record.headers ?? []).map((header) => el("p", { class: "mono" }, `${inLine(header, "name")}: ${inLine(header, "value")}`)),
    block("Body", text === undefined ? hexDump(bytesOf(record)) : asJson(text) ?? (text || "(empty)")));
}
