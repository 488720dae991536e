// The page of the management listener: navigation by hash routes, and the state that all views share. A view is a
// function (root, values, shell) that fills `root` and returns what it wants to hear: `state(now, restarted)` once a
// second, `message(detail)` and after several of them `drawn()`, and `close()`.

import { Feed, TokenNeeded, change, query, setToken } from "./api.js";
import { put } from "./dom.js";
import { compareView } from "./compare.js";
import { connectionsView } from "./connections.js";
import { messagesView } from "./messages.js";
import { overviewView } from "./overview.js";
import { captureView, recordingsView } from "./recordings.js";
import { routesView } from "./routes.js";
import { streamView } from "./stream.js";
import { streamsView } from "./streams.js";

const VIEWS = {
  "": ["Overview", overviewView],
  streams: ["Streams", streamsView],
  stream: ["Stream", streamView, "streams"],
  messages: ["Messages", messagesView],
  connections: ["Connections", connectionsView],
  recordings: ["Recordings", recordingsView],
  recording: ["Recording", captureView, "recordings"],
  compare: ["Comparison", compareView, "recordings"],
  routes: ["Routes", routesView],
};
const MOST_KEPT = 300; // messages, for the view that is opened next

const $ = (id) => document.getElementById(id);
const shell = { state: null, messages: [], missed: 0, notice, act, go, replace };
let current = {};
let feed = null;
let heard = 0; // the number of the last message

// ---- views ----------------------------------------------------------------------------------------------------------

const address = (name, values) => {
  const asked = query(values);
  return `#/${name}${asked ? `?${asked}` : ""}`;
};

function go(name, values = {}) {
  location.hash = address(name, values);
}

// Keep what a view shows in the address, without a new entry in the history.
function replace(name, values = {}) {
  history.replaceState(null, "", address(name, values));
}

function open(focus) {
  const [asked, values = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const path = Object.hasOwn(VIEWS, asked) ? asked : "";
  const [title, view, parent = path] = VIEWS[path];
  current.close?.();
  current = {};
  $("view").replaceChildren();
  const chosen = `#/${parent}`;
  for (const link of $("nav").querySelectorAll("a")) {
    if (link.getAttribute("href") === chosen) {
      link.setAttribute("aria-current", "page");
    } else {
      link.removeAttribute("aria-current");
    }
  }
  current = view($("view"), Object.fromEntries(new URLSearchParams(values)), shell);
  shell.title = title;
  setTitle();
  if (focus) {
    window.scrollTo(0, 0);
    $("view").querySelector("h1")?.focus();
  }
}

window.addEventListener("hashchange", () => open(true));

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the view
  $("view").focus();
});

function setTitle() {
  const ready = $("ready");
  document.title = `${shell.title} – Penstock${ready.dataset.state === "ready" ? "" : ` (${ready.textContent})`}`;
}

// ---- what the gateway says ------------------------------------------------------------------------------------------

function setReady(state, text, reasons = []) {
  $("ready").dataset.state = state;
  put($("ready"), text);
  put($("reasons"), reasons.join("; "));
  $("view").classList.toggle("stale", state === "lost");
  setTitle();
}

function start() {
  feed = new Feed("events", {
    event: hear,
    batch: () => current.drawn?.(),
    lost: (error) => {
      setReady("lost", "not connected");
      if (error && !(error instanceof TypeError)) {
        notice(error.message, "failed");
      }
    },
    token: askForToken,
  });
}

function hear(kind, data, restarted) {
  if (restarted) { // the gateway was restarted: its messages count from 1 again
    heard = 0;
  }
  if (kind === "state") {
    shell.state = data;
    setReady(data.ready ? "ready" : "not-ready", data.ready ? "ready" : "not ready", data.reasons);
    current.state?.(data, restarted);
  } else if (kind === "message") {
    shell.missed += heard && data.nth > heard + 1 ? data.nth - heard - 1 : 0;
    heard = data.nth;
    shell.messages.push(data.detail);
    shell.messages.splice(0, shell.messages.length - MOST_KEPT);
    current.message?.(data.detail);
  }
}

// ---- what is said to the user ---------------------------------------------------------------------------------------

let noticeTimer = 0;
function notice(text, kind) {
  clearTimeout(noticeTimer);
  $("notice").textContent = text;
  $("notice").dataset.kind = kind;
  $("notice").hidden = !text;
  noticeTimer = setTimeout(() => { $("notice").hidden = true; }, kind === "done" ? 6000 : 20000);
}

// Change something, with the button disabled meanwhile. `done(answer)` returns what to say.
async function act(button, method, path, words, done) {
  button.disabled = true;
  try {
    notice(done(await change(method, path, words)), "done");
  } catch (error) {
    notice(error.message, "failed");
  } finally {
    button.disabled = false;
  }
}

function askForToken(why) {
  feed?.close();
  setReady("unknown", "token required");
  $("view").hidden = true;
  $("token-form").hidden = false;
  notice(why, "failed");
  $("token").focus();
}

$("token-form").addEventListener("submit", (submitted) => {
  submitted.preventDefault();
  setToken($("token").value.trim());
  $("token").value = "";
  $("token-form").hidden = true;
  $("view").hidden = false;
  notice("", "done");
  start();
  open(false);
});

window.addEventListener("unhandledrejection", (event) => {
  if (event.reason instanceof TokenNeeded) { // a view asked before the feed did
    event.preventDefault();
  }
});

open(false);
start();
