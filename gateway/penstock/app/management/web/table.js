// Tables whose rows are updated in place, so that focus and selection survive; headers may sort.

import { el, put, scroller } from "./dom.js";

// `columns`: {title, key, number, wide, sort, text(row), make(row)}: `text` is updated, `make` builds the cell once.
// `id(row)` tells rows apart. `onSort(key)`: a header was pressed, `-key` for descending.
export class Table {
  #columns;
  #id;
  #rows = new Map();
  #body = el("tbody");
  #headers = new Map();

  constructor({ label, columns, id, kind = "", onSort = null, rowClass = () => "" }) {
    this.#columns = columns;
    this.#id = id;
    this.rowClass = rowClass;
    const head = columns.map((column) => this.#header(column, onSort));
    this.table = el("table", {}, el("thead", {}, el("tr", {}, ...head)), this.#body);
    this.element = scroller(label, kind, this.table);
    this.element.hidden = true;
  }

  #header(column, onSort) {
    const header = el("th", { class: column.number ? "number" : "", scope: "col" });
    if (onSort && column.key) {
      header.append(el("button", { class: "sort", type: "button", onclick: () => onSort(this.#turned(column)) }, column.title));
      this.#headers.set(column.key, header);
    } else {
      header.append(column.title || el("span", { class: "unseen" }, "Actions"));
    }
    return header;
  }

  #turned(column) {
    const now = this.#headers.get(column.key).getAttribute("aria-sort");
    const first = column.number ? "descending" : "ascending";
    const wanted = now === null ? first : now === "ascending" ? "descending" : "ascending";
    return (wanted === "descending" ? "-" : "") + column.key;
  }

  sorted(by) {
    for (const [key, header] of this.#headers) {
      if (by.replace(/^-/, "") === key) {
        header.setAttribute("aria-sort", by.startsWith("-") ? "descending" : "ascending");
      } else {
        header.removeAttribute("aria-sort");
      }
    }
  }

  get rows() {
    return [...this.#rows.values()].map((kept) => kept.row);
  }

  update(rows) {
    const gone = new Set(this.#rows.keys());
    let at = this.#body.firstElementChild;
    for (const row of rows) {
      const id = String(this.#id(row));
      gone.delete(id);
      const kept = this.#rows.get(id) ?? this.#made(id, row);
      kept.row = row;
      this.#columns.forEach((column, index) => column.text && put(kept.cells[index], column.text(row)));
      if (kept.element === at) {
        at = at.nextElementSibling;
      } else {
        this.#body.insertBefore(kept.element, at);
      }
    }
    for (const id of gone) {
      this.#rows.get(id).element.remove();
      this.#rows.delete(id);
    }
    this.element.hidden = rows.length === 0;
  }

  #made(id, row) {
    const cells = this.#columns.map((column) => el("td", {
      class: [column.number && "number", column.wide && "wide", column.mono && "mono"].filter(Boolean).join(" "),
      "data-label": column.title,
    }, column.make?.(row)));
    const element = el("tr", { class: this.rowClass(row), "data-id": id }, ...cells);
    const kept = { element, cells, row };
    this.#rows.set(id, kept);
    return kept;
  }
}
