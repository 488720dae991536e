// Requests to the management listener, and its streams of events.

const TOKEN = "penstock-token";
const BACK_AFTER_MS = [500, 1000, 2000, 4000, 8000];

let token = sessionStorage.getItem(TOKEN) || "";

export const hasToken = () => token !== "";

export function setToken(text) {
  token = text;
  sessionStorage.setItem(TOKEN, text);
}

const authorization = () => (token ? { authorization: `Bearer ${token}` } : {});

export class TokenNeeded extends Error {}

export const query = (values) =>
  new URLSearchParams(Object.entries(values).filter(([, value]) => value !== undefined && value !== "" && value !== null)).toString();

async function answered(path, options) {
  const answer = await fetch(path, { ...options, headers: { ...options.headers, ...authorization() }, cache: "no-store" });
  if (answer.status === 401) {
    throw new TokenNeeded(token ? "The token is not valid." : "");
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    const beyond = said.tail ? `The position is beyond the tail, ${said.tail.seq_num}.` : "";
    throw new Error(said.message || beyond || `The gateway answered with status ${answer.status}.`);
  }
  return answer;
}

export async function get(path, values = {}, signal = undefined) {
  const asked = query(values);
  return (await answered(asked ? `${path}?${asked}` : path, { signal })).json();
}

export async function change(method, path, words) {
  const headers = { "content-type": "application/json" };
  return (await answered(path, { method, headers, body: JSON.stringify(words) })).json();
}

// A link cannot carry the token, so a file is fetched where there is one.
export async function download(path, name) {
  const file = await (await answered(path, {})).blob();
  const url = URL.createObjectURL(file);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// Server-sent events. EventSource cannot send a token, so they are read with fetch: with the same event IDs, resuming
// after the last one when the connection is lost. `on.event(kind, data, restarted)`, `on.batch()` after each piece,
// `on.lost(error)` when it is lost, `on.token(text)` if a token is needed.
export class Feed {
  #path;
  #on;
  #stop = new AbortController();
  #lastId = "";

  constructor(path, on) {
    this.#path = path;
    this.#on = on;
    this.#run();
  }

  close() {
    this.#stop.abort();
  }

  async #run() {
    for (let failures = 0; !this.#stop.signal.aborted; failures += 1) {
      try {
        const headers = { accept: "text/event-stream" };
        if (this.#lastId) {
          headers["last-event-id"] = this.#lastId;
        }
        const answer = await answered(this.#path, { headers, signal: this.#stop.signal });
        failures = 0;
        await eachBlock(answer.body.pipeThrough(new TextDecoderStream()).getReader(),
          (block) => this.#stop.signal.aborted || this.#event(block), () => this.#on.batch?.());
        this.#on.lost?.(null);
      } catch (error) {
        if (this.#stop.signal.aborted) {
          return;
        }
        if (error instanceof TokenNeeded) {
          this.#on.token?.(error.message);
          return;
        }
        this.#on.lost?.(error);
      }
      await new Promise((resume) => setTimeout(resume, BACK_AFTER_MS[Math.min(failures, BACK_AFTER_MS.length - 1)]));
    }
  }

  #event(block) {
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
    const restarted = this.#lastId !== "" && epoch(fields.id) !== epoch(this.#lastId);
    this.#lastId = fields.id;
    this.#on.event(fields.event, JSON.parse(fields.data), restarted);
  }
}

// A request whose answer comes as server-sent events, once: `on[kind](data)` for each, `on.batch()` after each piece.
export async function events(path, values, signal, on) {
  const answer = await answered(`${path}?${query(values)}`, { signal, headers: { accept: "text/event-stream" } });
  await eachBlock(answer.body.pipeThrough(new TextDecoderStream()).getReader(), (block) => {
    const [kind, data] = block.split("\n", 2).map((line) => line.slice(line.indexOf(": ") + 2));
    on[kind]?.(JSON.parse(data));
  }, () => on.batch());
}

async function eachBlock(reader, each, after) {
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      return;
    }
    const blocks = (held + value).split("\n\n");
    held = blocks.pop();
    blocks.forEach(each);
    after();
  }
}

// Ask again and again until the view is closed; `show(answer)` draws, `failed(error)` says what went wrong.
export class Poll {
  #stop = new AbortController();
  #timer = 0;
  #ask;
  #seconds;

  constructor(seconds, ask) {
    this.#seconds = seconds;
    this.#ask = ask;
    this.now();
  }

  async now() {
    clearTimeout(this.#timer);
    if (!this.#stop.signal.aborted) {
      await this.#ask(this.#stop.signal);
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.now(), this.#seconds * 1000);
    }
  }

  close() {
    this.#stop.abort();
    clearTimeout(this.#timer);
  }
}
