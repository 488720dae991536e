// Live messages, with a filter in the words of `penstock tail --filter`.

import { Feed, query } from "./api.js";
import { card, el, empty, field, put } from "./dom.js";
import { Messages } from "./inspector.js";

const MOST = 200;
export const FILTER_HELP = "Such as kind=Append* stream=penstock/* \"a text\". Names: connection, protocol, stream, kind, "
  + "exchange, text.";

const linkFor = (filter) => `#/messages?${query({ filter })}`;

export function messagesView(root, values, shell) {
  let messages = [];
  let waiting = [];
  let paused = false;
  let missed = 0;
  let last = 0;
  const filter = values.filter ?? "";
  const table = new Messages("Table of messages", linkFor);
  const none = empty("");
  const skipped = el("p", { class: "quiet", id: "skipped" });
  const wrong = el("p", { class: "wrong", role: "alert", id: "filter-wrong" });
  const input = el("input", { id: "filter", value: filter, size: 44, autocomplete: "off", spellcheck: "false", "aria-describedby": "filter-help", placeholder: "all messages" });
  const form = el("form", { class: "fields", role: "search", onsubmit: (event) => {
    event.preventDefault();
    shell.go("messages", { filter: input.value.trim() });
  } }, field("Filter", input), el("button", {}, "Apply"),
  el("p", { class: "quiet help", id: "filter-help" }, FILTER_HELP));
  const pause = el("button", { type: "button", id: "pause", "aria-pressed": "false", onclick: () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    put(pause, paused ? "Resume" : "Pause");
    draw();
  } }, "Pause");
  const clear = el("button", { type: "button", id: "clear", onclick: () => {
    messages = [];
    missed = 0;
    draw();
    render();
  } }, "Clear");

  root.append(el("h1", { tabindex: -1 }, "Messages"), card("Live traffic", [skipped, el("div", { class: "apart" }, pause, " ", clear)],
    form, wrong, table.element, none));

  function take(message) {
    waiting.push(message);
    waiting.splice(0, waiting.length - MOST);
  }

  function draw() {
    put(skipped, missed ? `${missed} skipped` : "");
    if (!paused && waiting.length) {
      messages = [...waiting.reverse(), ...messages].slice(0, MOST);
      waiting = [];
      render();
    }
  }

  function render() {
    table.update(messages);
    none.hidden = messages.length > 0;
    put(none, filter ? "No message matched this filter yet." : "No messages yet. They appear here as soon as clients send some.");
  }

  render();
  if (!filter) {
    shell.messages.forEach(take);
    draw();
    const skippedBefore = shell.missed;
    return { message: take, drawn: () => { missed = shell.missed - skippedBefore; draw(); }, state: render };
  }
  const feed = new Feed(`events?${query({ filter })}`, {
    event: (kind, data, restarted) => {
      if (kind === "message") {
        missed += !restarted && last && data.nth > last + 1 ? data.nth - last - 1 : 0;
        last = data.nth;
        take(data.detail);
      }
    },
    batch: () => { put(wrong, ""); draw(); },
    lost: (error) => {
      if (error && !(error instanceof TypeError)) {
        put(wrong, error.message);
        input.setAttribute("aria-invalid", "true");
        feed.close();
      }
    },
  });
  return { close: () => feed.close() };
}
