// Listeners, routes and backs as a live picture, and the same as tables.

import { Poll, get } from "./api.js";
import { Chart } from "./charts.js";
import { card, el, empty, put, svg } from "./dom.js";
import { Table } from "./table.js";
import { age, count, milliseconds } from "./text.js";

const WIDTH = 1000;
const BOX = { width: 260, height: 62, gap: 18 };
const COLUMNS = { listeners: 0, routes: (WIDTH - BOX.width) / 2, backs: WIDTH - BOX.width };
const HOUR = 360;
const DEFAULT = ""; // the name of the route in metrics if none is configured

export function routesView(root) {
  const none = empty("Loading…");
  const picture = el("div", { class: "picture", tabindex: 0, role: "region", "aria-label": "Picture of listeners, routes and backs" });
  const charts = new Map();
  const graphs = el("div", { class: "charts" });
  const quiet = empty("No back was used in the last hour.");
  const routes = new Table({
    label: "Table of routes", id: (row) => row.name,
    columns: [
      { title: "Route", text: (row) => row.name },
      { title: "Streams and clients", wide: true, text: (row) => row.match },
      { title: "Back", text: (row) => (row.back === row.configured_back ? row.back : `${row.back} (configured: ${row.configured_back})`) },
      { title: "Circuit", text: (row) => row.circuit ?? "unknown" },
      { title: "Mirror", text: (row) => (row.mirror === null ? "" : `${row.mirror.secondary ?? ""} ${row.mirror.state ?? ""}`.trim()) },
      ...FIGURES,
    ],
  });
  const backs = new Table({
    label: "Table of backs", id: (row) => row.name, rowClass: (row) => (row.circuit === "open" ? "failed" : ""),
    columns: [
      { title: "Back", text: (row) => row.name },
      { title: "Kind", text: (row) => row.kind },
      { title: "Address", mono: true, text: (row) => row.address },
      { title: "Circuit", text: (row) => row.circuit + (row.since ? `, ${age(Date.now() - row.since)}` : "") },
      { title: "Reason", wide: true, text: (row) => row.reason },
      ...FIGURES,
    ],
  });
  root.append(el("h1", { tabindex: -1 }, "Routes"),
    card("Now", [el("p", { class: "quiet" }, "operations of the last minute")], picture, none),
    card("Routes", [], routes.element), card("Backs", [], backs.element),
    card("Backs in the last hour", [], graphs, quiet));

  const poll = new Poll(5, async (signal) => {
    try {
      const [status, { routes: found }, { backs: there }, history] = await Promise.all(
        ["status", "routes", "backs", "history"].map((path) => get(path, {}, signal)));
      const sums = byName(history.sums);
      const named = (list, kind) => list.map((one) => ({ ...one, figures: sums[kind].get(one.name) }));
      routes.update(named(found, "route"));
      backs.update(named(there, "back"));
      picture.replaceChildren(draw(status.listeners, found, there, history.ways, sums));
      none.hidden = true;
      quiet.hidden = Object.keys(history.backs).length > 0;
      for (const [name, columns] of Object.entries(history.backs)) {
        if (!charts.has(name)) {
          const chart = new Chart({ title: name, format: (ms) => milliseconds(ms), span: "1 hour", least: 0.01,
            series: [["p50_ms", "p50", "in"], ["p99_ms", "p99", "out"]] });
          charts.set(name, chart);
          graphs.append(chart.element);
        }
        charts.get(name).update(columns, HOUR);
      }
    } catch (error) {
      if (!signal.aborted) {
        put(none, error.message);
      }
    }
  });
  return { close: () => poll.close() };
}

const FIGURES = [
  { title: "Operations", number: true, text: (row) => count(row.figures?.operations ?? 0) },
  { title: "p50", number: true, text: (row) => milliseconds(row.figures?.p50_ms) },
  { title: "p99", number: true, text: (row) => milliseconds(row.figures?.p99_ms) },
  { title: "Errors", number: true, text: (row) => count(row.figures?.errors ?? 0) },
];

const byName = (sums) => Object.fromEntries(Object.entries(sums).map(([kind, found]) => [kind, new Map(Object.entries(found))]));

function draw(listeners, routes, backs, ways, sums) {
  const shownRoutes = routes.length ? routes : [{ name: DEFAULT, match: "all streams", back: "embedded", mirror: null }];
  const places = { listeners: new Map(), routes: new Map(), backs: new Map() };
  const tallest = Math.max(listeners.length, shownRoutes.length, backs.length);
  const height = tallest * (BOX.height + BOX.gap) - BOX.gap + 34;
  const place = (column, list) => list.forEach((one, index) => {
    const spare = (tallest - list.length) * (BOX.height + BOX.gap) / 2;
    places[column].set(one.name, 30 + spare + index * (BOX.height + BOX.gap));
  });
  place("listeners", listeners);
  place("routes", shownRoutes);
  place("backs", backs);
  const boxes = [
    ...listeners.map((one) => box("listeners", places, one.name, one.name.replace("listeners.", ""), rate(sums.listener.get(one.name)), "")),
    ...shownRoutes.map((one) => box("routes", places, one.name, one.name || "no routes configured", one.match, "")),
    ...backs.map((one) => box("backs", places, one.name, `${one.name}, circuit ${one.circuit}`, rate(sums.back.get(one.name)), one.circuit)),
  ];
  const links = [
    ...used(listeners, shownRoutes, ways).map(([from, to, busy, failed]) => link(places, "listeners", from, "routes", to, busy, failed)),
    ...shownRoutes.map((one) => {
      const sum = sums.route.get(one.name);
      const back = backs.find((other) => other.name === one.back);
      return link(places, "routes", one.name, "backs", one.back, sum?.operations ?? 0, (sum?.errors ?? 0) > 0 || back?.circuit === "open");
    }),
    ...shownRoutes.filter((one) => one.mirror?.secondary).map((one) => link(places, "routes", one.name, "backs", one.mirror.secondary, 0, false, "mirror")),
  ];
  const heads = [["Listeners", COLUMNS.listeners], ["Routes", COLUMNS.routes], ["Backs", COLUMNS.backs]]
    .map(([title, x]) => svg("text", { class: "head", x, y: 14 }, title));
  return svg("svg", { viewBox: `-2 0 ${WIDTH + 4} ${height}`, role: "img", "aria-label": inWords(shownRoutes, backs, sums) }, ...heads, ...links, ...boxes);
}

// A listener is joined with the routes that its clients used in the last minute; with one that is idle, all are faint.
function used(listeners, routes, ways) {
  return listeners.flatMap((listener) => routes.map((route) => {
    const some = ways.filter((way) => way.listener === listener.name && way.route === route.name);
    const busy = some.reduce((sum, way) => sum + way.operations, 0);
    return [listener.name, route.name, busy, some.some((way) => way.errors > 0)];
  }));
}

const rate = (sum) => (sum ? `${count(sum.operations)} ops, p50 ${milliseconds(sum.p50_ms)}, p99 ${milliseconds(sum.p99_ms)}` : "idle");

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function box(column, places, name, title, text, circuit) {
  const [x, y] = [COLUMNS[column], places[column].get(name)];
  return svg("g", { class: `box ${circuit}` },
    svg("title", {}, `${title}: ${text}`),
    svg("rect", { x, y, width: BOX.width, height: BOX.height, rx: 8 }),
    svg("text", { class: "name", x: x + 12, y: y + 25 }, short(title, 28)),
    svg("text", { class: "about", x: x + 12, y: y + 46 }, short(text, 36)));
}

function link(places, from, name, to, other, busy, failed, kind = "") {
  const [y1, y2] = [places[from].get(name), places[to].get(other)];
  if (y1 === undefined || y2 === undefined) {
    return null;
  }
  const [x1, x2] = [COLUMNS[from] + BOX.width, COLUMNS[to]];
  const [a, b, middle] = [y1 + BOX.height / 2, y2 + BOX.height / 2, (x1 + x2) / 2];
  const state = failed ? "failing" : busy ? "busy" : "idle";
  return svg("path", { class: `link ${state} ${kind}`, d: `M ${x1} ${a} C ${middle} ${a} ${middle} ${b} ${x2} ${b}`,
    "stroke-width": 1.5 + Math.min(5, Math.log10(1 + busy)) });
}

const inWords = (routes, backs, sums) => [
  ...routes.map((one) => `${one.name ? `Route ${one.name}` : "Without routes everything"} leads to ${one.back}`),
  ...backs.map((one) => `back ${one.name} is ${one.circuit}, ${rate(sums.back.get(one.name))}`),
].join("; ");
