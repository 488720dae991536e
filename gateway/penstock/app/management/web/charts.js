// Small charts of values over time. Each has a text for screen readers, and its scale in words.

import { el, put, svg } from "./dom.js";

const WIDTH = 600;
const HEIGHT = 100;

// 1, 2 or 5 times a power of ten, for bytes of a power of 1024, so that the scale does not dance.
function roof(most, base) {
  const unit = base === 1024 ? 1024 ** Math.max(0, Math.floor(Math.log(most) / Math.log(1024))) : 1;
  const ten = 10 ** Math.floor(Math.log10(most / unit));
  return unit * ten * [1, 2, 5, 10].find((step) => step * ten * unit >= most * 0.999999);
}

// `series`: [[key, name, kind]]; `format(value)`: its text; `least`: the smallest roof; `span`: what the width stands for.
export class Chart {
  #series;
  #format;
  #base;
  #least;
  #lines = new Map();
  #values = new Map();
  #scale = el("span", { class: "scale quiet" });
  #title;
  #picture;

  constructor({ title, series, format, base = 10, least = 1, span }) {
    this.#series = series;
    this.#format = format;
    this.#base = base;
    this.#least = least;
    this.#title = title;
    const rules = [0.25, 0.5, 0.75].map((part) =>
      svg("line", { class: "rule", x1: 0, x2: WIDTH, y1: HEIGHT * part, y2: HEIGHT * part }));
    const paths = series.flatMap(([key, , kind]) => {
      const made = [svg("path", { class: `area ${kind}` }), svg("path", { class: `line ${kind}` })];
      this.#lines.set(key, made);
      return made;
    });
    this.#picture = svg("svg", {
      role: "img", "aria-label": title, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none",
    }, ...rules, ...paths);
    const legends = series.map(([key, name, kind]) => {
      const value = el("b", {}, "–");
      this.#values.set(key, value);
      return el("span", { class: "legend" }, el("span", { class: `key ${kind}` }), `${name} `, value);
    });
    this.element = el("figure", { class: "chart" },
      el("figcaption", {}, el("span", { class: "name" }, title), ...legends),
      el("div", { class: "graph" }, this.#scale, this.#picture),
      el("p", { class: "axis quiet" }, el("span", {}, `${span} ago`), el("span", {}, "now")));
  }

  // `columns`: values by key, the newest last; null: unknown. `points`: how many the width holds.
  update(columns, points) {
    const all = this.#series.flatMap(([key]) => columns[key] ?? []).filter((value) => value !== null);
    const top = roof(Math.max(this.#least, ...all), this.#base);
    put(this.#scale, this.#format(top));
    const said = [];
    for (const [key, name] of this.#series) {
      const values = columns[key] ?? [];
      const last = values.at(-1) ?? null;
      put(this.#values.get(key), last === null ? "–" : this.#format(last));
      said.push(`${name}: ${last === null ? "unknown" : this.#format(last)} now, at most ${this.#format(Math.max(0, ...values))}`);
      this.#draw(this.#lines.get(key), values, points, top);
    }
    this.#picture.setAttribute("aria-label", `${this.#title}. ${said.join("; ")}`);
  }

  #draw([area, line], values, points, top) {
    const at = (index) => WIDTH - (values.length - 1 - index) * (WIDTH / (points - 1));
    const places = values.map((value, index) => (value === null
      ? null : `${at(index).toFixed(1)} ${(HEIGHT - 1 - (value / top) * (HEIGHT - 4)).toFixed(1)}`));
    const runs = [];
    places.forEach((place, index) => {
      if (place !== null) {
        if (index && places[index - 1] !== null) {
          runs.at(-1).push(place);
        } else {
          runs.push([place]);
        }
      }
    });
    line.setAttribute("d", runs.map((run) => `M ${run.join(" L ")}${run.length === 1 ? " h 0.1" : ""}`).join(" "));
    area.setAttribute("d", runs.map((run) =>
      `M ${run[0].split(" ")[0]} ${HEIGHT} L ${run.join(" L ")} L ${run.at(-1).split(" ")[0]} ${HEIGHT} Z`).join(" "));
  }
}
