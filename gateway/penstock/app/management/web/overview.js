// The overview: traffic now and in the last hour, the process, its certificates, and limits that took effect.

import { Poll, get } from "./api.js";
import { Chart } from "./charts.js";
import { card, el, empty, pairs } from "./dom.js";
import { Table } from "./table.js";
import { age, count, size, utc } from "./text.js";

const POINTS = 120; // of the live chart, one a second
const HOUR = 360; // samples of the history
const STEP = 10; // seconds that one sample covers
const LEVELS = ["debug", "info", "warning", "error"];
const SOON_MS = 30 * 86400 * 1000;
const rates = { in: [], out: [] };
let before = null;
let begun = false; // the live chart begins with what the gateway remembers

function begin(history) {
  begun = true;
  for (const way of ["in", "out"]) {
    const steps = history[`bytes_${way}`].slice(-POINTS / STEP);
    rates[way].unshift(...steps.flatMap((rate) => Array(STEP).fill(rate)));
    rates[way].splice(0, rates[way].length - POINTS);
  }
}

export function overviewView(root, _values, shell) {
  const live = new Chart({
    title: "Bytes a second", base: 1024, least: 1024, span: "2 minutes", format: (value) => `${size(value)}/s`,
    series: [["in", "from clients", "in"], ["out", "to clients", "out"]],
  });
  live.element.id = "throughput";
  const hour = (title, series, format, more = {}) => new Chart({ title, series, format, span: "1 hour", ...more });
  const charts = [
    hour("Bytes a second", [["bytes_in", "from clients", "in"], ["bytes_out", "to clients", "out"]],
      (value) => `${size(value)}/s`, { base: 1024, least: 1024 }),
    hour("Records a second", [["records_in", "appended", "in"], ["records_out", "read", "out"]], (value) => `${count(value)}/s`),
    hour("Connections", [["connections", "open", "in"]], count),
    hour("Failed operations a second", [["errors", "failed", "bad"]], (value) => `${count(value)}/s`),
  ];
  const level = el("select", { id: "log-level", onchange: () => {
    const wanted = level.value;
    shell.act(level, "PUT", "log", { level: wanted }, () => `The log level is now ${wanted}.`);
  } }, ...LEVELS.map((one) => el("option", {}, one)));
  const about = el("div", { id: "process" }, empty("Loading…"));
  const connections = el("b", { id: "connections-now" }, "–");
  const certificates = new Table({
    label: "Table of certificates", id: (row) => `${row.owner} ${row.file} ${row.subject}`, rowClass: (row) => certificateState(row),
    columns: [
      { title: "Owner", text: (row) => row.owner },
      { title: "Subject", text: (row) => row.subject, wide: true },
      { title: "File", text: (row) => row.file, mono: true, wide: true },
      { title: "Expires", text: (row) => `${utc(row.expires).slice(0, 16)}${certificateState(row) ? " (soon)" : ""}` },
    ],
  });
  const limits = new Table({
    label: "Table of limits", id: (row) => `${row.listener} ${row.limit}`,
    columns: [
      { title: "Limit", text: (row) => row.limit, mono: true },
      { title: "Listener", text: (row) => row.listener || "all" },
      { title: "Requests affected", number: true, text: (row) => count(row.count) },
    ],
  });
  const noCertificates = empty("No certificates are in use.");
  const noLimits = empty("No limit took effect since the start.");

  root.append(
    el("h1", { tabindex: -1 }, "Overview"),
    card("Now", [el("p", { class: "quiet" }, "open connections ", connections)], live.element),
    card("Last hour", [el("p", { class: "quiet" }, "kept by the gateway, in steps of 10 seconds")],
      el("div", { class: "charts", id: "hour" }, ...charts.map((chart) => chart.element))),
    el("div", { class: "columns" },
      card("Process", [el("label", { class: "apart" }, "Log level ", level)], about),
      card("Limits that took effect", [], limits.element, noLimits),
      card("Certificates", [], certificates.element, noCertificates)));

  const poll = new Poll(10, async (signal) => {
    try {
      const [status, history] = await Promise.all([get("status", {}, signal), get("history", {}, signal)]);
      about.replaceChildren(pairs([
        ["Version", status.version], ["Python", status.python],
        ["Uptime", `${age(status.uptime_seconds * 1000)}, since ${utc(status.started).slice(0, 19)} UTC`],
        ["Configuration", status.reloaded ? `loaded ${utc(status.reloaded).slice(0, 19)} UTC` : undefined],
        ["Processor time", `${status.cpu_seconds.toFixed(1)} s`], ["Memory", size(status.resident_bytes)],
        ["Open files", `${count(status.open_files)} of ${count(status.most_open_files)}`],
        ["Store", size(status.store_bytes)],
      ]));
      certificates.update(status.certificates);
      noCertificates.hidden = status.certificates.length > 0;
      limits.update(status.limits);
      noLimits.hidden = status.limits.length > 0;
      charts.forEach((chart) => chart.update(history, HOUR));
      if (!begun) {
        begin(history);
        live.update(rates, POINTS);
      }
    } catch (error) {
      if (!signal.aborted && about.querySelector("dl") === null) {
        about.replaceChildren(empty(error.message));
      }
    }
  });

  const state = (now, restarted) => {
    connections.textContent = count(now.connections);
    if (document.activeElement !== level) {
      level.value = now.log_level;
    }
    if (before !== null && !restarted && now.time > before.time) {
      for (const way of ["in", "out"]) {
        rates[way].push(Math.max(0, now.bytes[way] - before.bytes[way]) / ((now.time - before.time) / 1000));
        rates[way].splice(0, rates[way].length - POINTS);
      }
      live.update(rates, POINTS);
    }
    before = now;
  };
  if (shell.state) {
    before = null;
    state(shell.state, false);
  }
  return { state, close: () => poll.close() };
}

const certificateState = (row) => (row.expires < Date.now() + SOON_MS ? "failed" : "");

