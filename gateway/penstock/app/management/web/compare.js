// Two captures, record by record, as `penstock diff` compares them.

import { get } from "./api.js";
import { block, card, el, empty, field, put } from "./dom.js";
import { count, plural, size } from "./text.js";

const OPEN = 3; // differences of a stream that are shown at once

export function compareView(root, values, shell) {
  const stop = new AbortController();
  const { a = "", b = "", by = "content" } = values;
  const selects = { a: el("select", { id: "a" }), b: el("select", { id: "b" }) };
  const how = el("select", { id: "by" }, el("option", { value: "content" }, "content"), el("option", { value: "position", selected: by === "position" }, "position"));
  const result = el("div", { id: "result" });
  const verdict = el("p", { role: "status", class: "verdict", id: "verdict" });
  const form = el("form", { class: "fields", onsubmit: (event) => {
    event.preventDefault();
    shell.go("compare", { a: selects.a.value, b: selects.b.value, by: how.value });
  } }, field("A", selects.a), field("B", selects.b), field("Match records by", how), el("button", {}, "Compare"));
  root.append(el("p", { class: "crumbs" }, el("a", { href: "#/recordings" }, "Recordings")),
    el("h1", { tabindex: -1 }, "Comparison"), card("Two captures", [], form), verdict, result);

  async function load() {
    try {
      const { captures } = await get("captures", {}, stop.signal);
      for (const [side, name] of [["a", a], ["b", b]]) {
        selects[side].append(...captures.map((one) => el("option", { value: one.name, selected: one.name === name }, one.name)));
      }
      if (!a || !b) {
        put(verdict, "Choose two captures.");
        return;
      }
      put(verdict, "Comparing…");
      const answer = await get("captures/compare", { a, b, by }, stop.signal);
      verdict.dataset.equal = answer.equal;
      put(verdict, answer.equal ? "All records are equal." : `Records differ in ${count(answer.streams.filter((one) => !one.equal).length)} of ${count(answer.streams.length)} streams.`);
      result.replaceChildren(...(answer.streams.length ? answer.streams.map(stream) : [empty("Neither capture has records.")]));
    } catch (error) {
      if (!stop.signal.aborted) {
        put(verdict, "");
        result.replaceChildren(empty(error.message));
      }
    }
  }

  load();
  return { close: () => stop.abort() };
}

const sideText = (side) => (side === null ? "not there" : `${side.name}, ${side.action}, ${plural(side.records, "record")}`);

function stream(one) {
  const counts = Object.entries(one.counts).map(([kind, number]) => `${number} ${kind}`).join(", ");
  return card((one.a ?? one.b).name, [el("p", { class: one.equal ? "quiet" : "wrong" }, one.equal ? "equal" : `different: ${counts}`)],
    el("p", { class: "quiet" }, `A: ${sideText(one.a)}. B: ${sideText(one.b)}. ${plural(one.same, "record")} the same.`),
    ...one.differences.map((difference, index) => el("details", { open: index < OPEN }, el("summary", {}, summary(difference)),
      el("div", { class: "halves" }, side("A", difference.a), side("B", difference.b)))));
}

function summary(difference) {
  const place = (difference.a ?? difference.b).position;
  const fields = difference.fields.join(", ");
  return `${difference.kind}${place ? ` at ${place}` : ""}${fields ? `: ${fields}` : ""}`;
}

const side = (title, row) => el("div", { role: "group", "aria-label": title }, el("h3", {}, title),
  row === null ? empty("No such record.") : block(`Record in ${title}`, `${size(row.size)} on connection ${row.connection}\n${row.body_begins}`));
