// The EventSource interface of browsers, which cannot send headers, against a running gateway.
//
//     node eventsource.mjs MODE ORIGIN BASIN STREAM          MODE: "host" or "query"
//
// Reads five records; the connection is cut from outside after the third, and EventSource must come back by itself
// with Last-Event-ID. Prints each record's number and body; appends on its own to show that it follows.

import assert from "node:assert/strict";
import dns from "node:dns";

import { EventSource } from "eventsource";

const [mode, origin, basin, stream] = process.argv.slice(2);

// Browsers take every name under localhost for loopback (RFC 6761); Node asks the system, which need not know.
const lookup = dns.lookup;
dns.lookup = (host, options, done) =>
  host.endsWith(".localhost") ? lookup("127.0.0.1", options, done) : lookup(host, options, done);

const { port } = new URL(origin);
const path = `/v1/streams/${stream}/records`;
const url =
  mode === "host"
    ? `http://${basin}.localhost:${port}${path}?seq_num=0`
    : `${origin}${path}?seq_num=0&s2-basin=${basin}`;

async function append(body) {
  const answer = await fetch(origin + path, {
    method: "POST",
    headers: { "s2-basin": basin, "content-type": "application/json" },
    body: JSON.stringify({ records: [{ body }] }),
  });
  assert.equal(answer.status, 200, await answer.text());
}

const deadline = setTimeout(() => {
  console.error("no end in sight");
  process.exit(3);
}, 30_000);

// The first connection is cut after three records, as a network would; what EventSource does then is its own affair.
const ids = [];
const cut = new AbortController();
let connections = 0;
const source = new EventSource(url, {
  fetch: async (input, init) => {
    connections += 1;
    ids.push(init.headers["Last-Event-ID"] ?? null);
    const signal = connections === 1 ? AbortSignal.any([init.signal, cut.signal]) : init.signal;
    return fetch(input, { ...init, signal });
  },
});

const seen = [];
let pings = 0;
source.addEventListener("ping", async (event) => {
  pings += 1;
  assert.ok(JSON.parse(event.data).tail.seq_num >= seen.length);
  if (seen.length < 5) await append(`live ${seen.length}`);
});
source.addEventListener("batch", async (event) => {
  for (const record of JSON.parse(event.data).records) {
    assert.equal(record.seq_num, seen.length);
    seen.push(record.body);
  }
  assert.match(event.lastEventId, new RegExp(`^${seen.length - 1},\\d+,\\d+$`));
  if (seen.length === 3) cut.abort(new TypeError("the network is gone"));
  else if (seen.length < 5) await append(`live ${seen.length}`);
  else {
    source.close();
    clearTimeout(deadline);
    assert.deepEqual(seen, ["live 0", "live 1", "live 2", "live 3", "live 4"]);
    assert.equal(connections, 2);
    assert.equal(ids[0], null);
    assert.match(ids[1], /^2,3,\d+$/);
    assert.ok(pings >= 2);
    process.exit(0);
  }
});
