"use strict";
// The page of the management listener. Names of streams and bodies of records are put into the document as text
// only (textContent); the content security policy forbids everything else.

const POINTS = 120;         // of the graph, one a second
const MOST_MESSAGES = 200;  // rows
const BACK_AFTER_MS = [500, 1000, 2000, 4000, 8000];
const TOKEN = "penstock-token";

const $ = (id) => document.getElementById(id);

// ---- asking ---------------------------------------------------------------------------------------------------------

let token = sessionStorage.getItem(TOKEN) || "";
const authorization = () => (token ? { authorization: `Bearer ${token}` } : {});

async function ask(method, path, words) {
  const options = { method, headers: authorization() };
  if (words !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(words);
  }
  const answer = await fetch(path, options);
  const said = await answer.json();
  if (!answer.ok) {
    throw new Error(said.message || `the gateway answered with status ${answer.status}`);
  }
  return said;
}

async function change(button, method, path, words, done) {
  button.disabled = true;
  try {
    const answer = await ask(method, path, words);
    notice(done(answer), "done");
  } catch (error) {
    notice(error.message, "failed");
  } finally {
    button.disabled = false;
  }
}

let noticeTimer = 0;
function notice(text, kind) {
  clearTimeout(noticeTimer);
  $("notice").textContent = text;
  $("notice").dataset.kind = kind;
  $("notice").hidden = !text;
  noticeTimer = setTimeout(() => { $("notice").hidden = true; }, kind === "done" ? 6000 : 20000);
}

// ---- events ---------------------------------------------------------------------------------------------------------

// EventSource cannot send a token, so the stream is read with fetch: with the same event IDs,
// resuming after the last one when the connection is lost.
let lastId = "";
let failures = 0;

async function follow() {
  for (;;) {
    try {
      await readEvents();
    } catch (error) {
      if (error instanceof Refused) {
        askForToken(error.message);
        return;
      }
    }
    setReady("lost", "not connected");
    await new Promise((resume) => setTimeout(resume, BACK_AFTER_MS[Math.min(failures, BACK_AFTER_MS.length - 1)]));
    failures += 1;
  }
}

class Refused extends Error {}

async function readEvents() {
  const headers = { accept: "text/event-stream", ...authorization() };
  if (lastId) {
    headers["last-event-id"] = lastId;
  }
  const answer = await fetch("events", { headers, cache: "no-store" });
  if (answer.status === 401) {
    throw new Refused(token ? "The token is not valid." : "");
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    notice(said.message || `the gateway answered with status ${answer.status}`, "failed");
    throw new Error(said.message);
  }
  failures = 0;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      return;
    }
    held += value;
    const blocks = held.split("\n\n");
    held = blocks.pop();
    blocks.forEach(event);
    draw();
  }
}

function event(block) {
  const fields = {};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) {
      fields[line.slice(0, colon)] = line.slice(colon + 2);
    }
  }
  if (fields.data === undefined) {
    return;
  }
  const epoch = (id) => id.slice(0, id.indexOf("-"));
  if (lastId && epoch(fields.id) !== epoch(lastId)) {
    begin();
  }
  lastId = fields.id;
  if (fields.event === "message") {
    hear(JSON.parse(fields.data));
  } else if (fields.event === "state") {
    show(JSON.parse(fields.data));
  }
}

// The gateway was restarted: its event numbers start again.
function begin() {
  heard = 0;
  before = null;
}

function askForToken(why) {
  setReady("unknown", "token required");
  $("main").hidden = true;
  $("token-form").hidden = false;
  notice(why, "failed");
  $("token").focus();
}

$("token-form").addEventListener("submit", (submitted) => {
  submitted.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem(TOKEN, token);
  $("token").value = "";
  $("token-form").hidden = true;
  $("main").hidden = false;
  notice("", "done");
  follow();
});

// ---- state ----------------------------------------------------------------------------------------------------------

function setReady(state, text, reasons = []) {
  $("ready").dataset.state = state;
  if ($("ready").textContent !== text) {
    $("ready").textContent = text;
  }
  $("reasons").textContent = reasons.join("; ");
  $("main").classList.toggle("stale", state === "lost");
  document.title = state === "ready" ? "Penstock" : `${text} - Penstock`;
}

function show(state) {
  setReady(state.ready ? "ready" : "not-ready", state.ready ? "ready" : "not ready", state.reasons);
  $("log-label").hidden = false;
  const level = $("log-level");
  if (document.activeElement !== level) {
    level.value = state.log_level;
  }
  showRates(state);
  showConnections(state);
  $("messages-empty").textContent =
    state.decodes ? "No messages yet." : "Messages are not decoded with several workers: set workers = 1.";
  showRecordings(state.recordings);
}

$("log-level").addEventListener("change", () => {
  const level = $("log-level").value;
  change($("log-level"), "PUT", "log", { level }, () => `The log level is now ${level}.`);
});

// ---- throughput -----------------------------------------------------------------------------------------------------

const rates = { in: [], out: [] };
let before = null;

function showRates(state) {
  if (before !== null && state.time > before.time) {
    const seconds = (state.time - before.time) / 1000;
    for (const way of ["in", "out"]) {
      const bytes = Math.max(0, state.bytes[way] - before.bytes[way]) / seconds;
      const records = Math.max(0, state.records[way] - before.records[way]) / seconds;
      rates[way].push(bytes);
      rates[way].splice(0, rates[way].length - POINTS);
      $(`rate-${way}`).textContent = `${size(bytes)}/s`;
      $(`records-${way}`).textContent = `${round(records)} records/s`;
    }
    drawGraph();
  }
  before = state;
}

const WIDTH = 1200, HEIGHT = 180;

function drawGraph() {
  const top = roof(Math.max(1024, ...rates.in, ...rates.out));
  for (const way of ["in", "out"]) {
    const points = rates[way].map((rate, index) => {
      const x = WIDTH - (rates[way].length - 1 - index) * (WIDTH / (POINTS - 1));
      return [x.toFixed(1), (HEIGHT - 2 - (rate / top) * (HEIGHT - 8)).toFixed(1)];
    });
    const line = points.map((point) => point.join(" ")).join(" L ");
    $(`line-${way}`).setAttribute("d", `M ${line}`);
    $(`area-${way}`).setAttribute("d", `M ${points[0][0]} ${HEIGHT} L ${line} L ${WIDTH} ${HEIGHT} Z`);
  }
  $("scale").textContent = `${size(top)}/s`;
}

// 1, 2 or 5 times a power of ten of the unit, so that the scale does not dance.
function roof(most) {
  const unit = 1024 ** Math.floor(Math.log(most) / Math.log(1024));
  const ten = 10 ** Math.floor(Math.log10(most / unit));
  return unit * ten * [1, 2, 5, 10].find((step) => step * ten * unit >= most);
}

for (const part of [0.25, 0.5, 0.75]) {
  const rule = document.createElementNS("http://www.w3.org/2000/svg", "line");
  const y = String(HEIGHT - 2 - part * (HEIGHT - 8));
  for (const [name, value] of Object.entries({ x1: "0", x2: String(WIDTH), y1: y, y2: y, class: "rule" })) {
    rule.setAttribute(name, value);
  }
  $("grid").append(rule);
}

// ---- connections ----------------------------------------------------------------------------------------------------

const rows = new Map();  // by connection

function showConnections(state) {
  const body = $("connections").tBodies[0];
  const gone = new Set(rows.keys());
  for (const one of state.rows) {
    gone.delete(one.connection);
    let row = rows.get(one.connection);
    if (row === undefined) {
      row = newConnection(one);
      rows.set(one.connection, row);
      body.append(row.element);
    }
    put(row.age, age(state.time - one.since));
    put(row.sent, size(one.client_bytes));
    put(row.received, size(one.server_bytes));
    put(row.about, about(one));
    row.recorded.hidden = one.recordings.length === 0;
  }
  for (const number of gone) {
    rows.get(number).element.remove();
    rows.delete(number);
  }
  $("connections-count").textContent = state.connections;
  $("connections-empty").hidden = state.connections > 0;
  $("connections").hidden = state.connections === 0;
  $("connections-more").textContent =
    state.connections > state.rows.length ? `showing the newest ${state.rows.length}` : "";
}

function newConnection(one) {
  const element = document.createElement("tr");
  element.dataset.connection = one.connection;
  const speaks = one.protocol + (one.tls ? " (TLS)" : "");
  cell(element, String(one.connection), "number");
  cell(element, one.name);
  cell(element, speaks);
  cell(element, one.side === "front" ? one.client : `to ${one.server}`, "mono");
  const row = { element, age: cell(element, "", "number"), sent: cell(element, "", "number") };
  row.received = cell(element, "", "number");
  const aboutCell = cell(element, "", "about");
  row.recorded = document.createElement("span");
  row.recorded.className = "tag recorded";
  row.recorded.textContent = "recorded";
  row.about = document.createElement("span");
  aboutCell.append(row.about, " ", row.recorded);
  const close = document.createElement("button");
  close.className = "plain danger";
  close.textContent = "Close";
  close.setAttribute("aria-label", `Close connection ${one.connection}`);
  close.addEventListener("click", () => change(
    close, "POST", `connections/${one.connection}/close`, {}, () => `Connection ${one.connection} is closed.`));
  cell(element, "").append(close);
  return row;
}

function about(one) {
  const parts = [];
  for (const [what, names] of [["stream", one.streams], ["route", one.routes], ["identity", one.identities]]) {
    if (names.length) {
      const more = names.length > 3 ? ` and ${names.length - 3} more` : "";
      parts.push(`${what} ${names.slice(0, 3).join(", ")}${more}`);
    }
  }
  return parts.join("; ");
}

// ---- recordings -----------------------------------------------------------------------------------------------------

let shownRecordings = "";

function showRecordings(recordings) {
  const said = JSON.stringify(recordings);
  if (said === shownRecordings) {
    return;
  }
  shownRecordings = said;
  const list = $("recordings");
  const focused = document.activeElement?.dataset?.stop;
  list.replaceChildren(...recordings.map(recordingItem));
  if (focused !== undefined) {
    list.querySelector(`[data-stop="${CSS.escape(focused)}"]`)?.focus();
  }
  $("recordings-count").textContent = recordings.length;
  $("recordings-empty").hidden = recordings.length > 0;
}

function recordingItem(one) {
  const item = document.createElement("li");
  const chosen = Object.entries(one.selection).map(([key, values]) => `${key} ${values.join(" or ")}`).join(", ");
  const span = (text, kind = "") => {
    const made = document.createElement("span");
    made.textContent = text;
    made.className = kind;
    item.append(made);
  };
  span(`${one.id}: ${chosen || "everything"}`);
  span(`${one.state}, ${one.conversations} connection${one.conversations === 1 ? "" : "s"}, ${size(one.bytes)}`, "quiet");
  if (one.dropped) {
    span(`${one.dropped} dropped`, "wrong");
  }
  if (one.last_error) {
    span(one.last_error, "wrong");
  }
  span(one.file || "", "file");
  const stop = document.createElement("button");
  stop.className = "apart";
  stop.textContent = "Stop";
  stop.dataset.stop = one.id;
  stop.setAttribute("aria-label", `Stop recording ${one.id}`);
  stop.addEventListener("click", () => change(
    stop, "POST", `recordings/${one.id}/stop`, {}, (ended) => `Recording ${ended.id} is complete: ${size(ended.bytes)}.`));
  item.append(stop);
  return item;
}

$("record-form").addEventListener("submit", (submitted) => {
  submitted.preventDefault();
  const stream = $("record-stream").value.trim();
  const button = $("record-form").querySelector("button");
  change(button, "POST", "recordings", stream ? { streams: [stream] } : {}, (begun) => `Recording ${begun.id} has started.`);
});

// ---- messages -------------------------------------------------------------------------------------------------------

const waiting = [];  // rows that are not drawn yet
let heard = 0;       // the number of the last message
let missed = 0;
let paused = false;

function hear(message) {
  if (heard && message.nth > heard + 1) {
    missed += message.nth - heard - 1;
    waiting.push({ gap: message.nth - heard - 1 });
  }
  heard = message.nth;
  waiting.push(message);
  waiting.splice(0, waiting.length - MOST_MESSAGES);
}

function draw() {
  $("messages-missed").textContent = missed ? `${missed} skipped` : "";
  if (paused || !waiting.length) {
    return;
  }
  const body = $("messages").tBodies[0];
  const wanted = $("filter").value.toLowerCase();
  const made = waiting.splice(0).map((message) => {
    const element = message.gap ? gapRow(message.gap) : messageRow(message);
    element.hidden = !matches(element, wanted);
    return element;
  });
  body.prepend(...made.reverse());
  while (body.rows.length > MOST_MESSAGES) {
    body.lastElementChild.remove();
  }
  showEmpty();
}

function showEmpty() {
  const none = !$("messages").tBodies[0].rows.length;
  $("messages-empty").hidden = !none;
  $("messages").hidden = none;
}

const matches = (element, wanted) => !wanted || element.textContent.toLowerCase().includes(wanted);

function gapRow(count) {
  const element = document.createElement("tr");
  element.className = "gap";
  cell(element, `${count} skipped`).colSpan = 8;
  return element;
}

function messageRow(message) {
  const element = document.createElement("tr");
  element.className = message.failure ? "failed" : "";
  cell(element, new Date(message.time).toISOString().slice(11, 23), "mono").title = new Date(message.time).toISOString();
  cell(element, String(message.connection), "number");
  const way = cell(element, message.sender === "client" ? "\u2192" : "\u2190", `way ${message.sender}`);
  way.title = message.sender === "client" ? "from the client" : "from the server";
  way.setAttribute("aria-label", way.title);
  cell(element, message.layer);
  cell(element, message.kind, "kind");
  cell(element, message.stream, "stream").title = message.stream;
  cell(element, message.length ? size(message.length) : "", "number");
  const said = document.createElement("div");
  said.className = "short";
  cell(element, "", "said").append(said);
  for (const body of message.bodies) {
    const made = document.createElement("span");
    made.className = "body";
    made.textContent = body;
    said.append(made);
  }
  if (message.records > message.bodies.length) {
    said.append(`and ${message.records - message.bodies.length} more records `);
  }
  const rest = [message.failure, message.said, message.state, message.answered && `after ${message.answered}`];
  said.append(rest.filter(Boolean).join(" "));
  said.title = [...message.bodies, ...rest].filter(Boolean).join("\n");
  return element;
}

$("filter").addEventListener("input", () => {
  const wanted = $("filter").value.toLowerCase();
  for (const element of $("messages").tBodies[0].rows) {
    element.hidden = !matches(element, wanted);
  }
});

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  $("pause").textContent = paused ? "Resume" : "Pause";
  draw();
});

$("clear").addEventListener("click", () => {
  $("messages").tBodies[0].replaceChildren();
  missed = 0;
  draw();
  showEmpty();
});

// ---- words ----------------------------------------------------------------------------------------------------------

function cell(row, text, kind = "") {
  const made = document.createElement("td");
  made.textContent = text;
  made.className = kind;
  row.append(made);
  return made;
}

function put(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

function size(bytes) {
  let amount = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (amount < 1024) {
      return unit === "B" ? `${Math.round(amount)} B` : `${amount.toFixed(1)} ${unit}`;
    }
    amount /= 1024;
  }
  return `${amount.toFixed(1)} TiB`;
}

const round = (number) => (number < 10 && number > 0 ? number.toFixed(1) : String(Math.round(number)));

function age(ms) {
  const seconds = Math.max(0, ms / 1000);
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * length) {
      return `${Math.round(seconds / length)} ${unit}`;
    }
  }
  return `${Math.round(seconds)} s`;
}

showEmpty();
$("connections").hidden = true;
follow();
