// The official TypeScript client, unmodified, across a restart of the gateway.
//
//     node restart.mjs ORIGIN BASIN TRANSPORT
//
// One append session writes numbers, each at the sequence number that it names; one read session follows. A quarter of
// the way it prints "go": the test that reads it restarts the gateway. The process ends with 0 only where every number was
// acknowledged and read, once, by the sessions that were opened at first.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

import { AppendInput, AppendRecord, S2 } from "@s2-dev/streamstore";

const [origin, basinName, transport] = process.argv.slice(2);
const COUNT = 400;

const s2 = new S2({
  accessToken: "a-token",
  endpoints: { account: origin, basin: origin },
  retry: { maxAttempts: 100, minBaseDelayMillis: 50, maxBaseDelayMillis: 200, appendRetryPolicy: "all" },
  requestTimeoutMillis: 60_000, // over fetch it includes the wait behind earlier appends; an applied one sent again fails
});
const basin = s2.basin(basinName);
const name = `restart-${transport}/${process.pid}`;
await basin.streams.create({ stream: name });
const stream = basin.stream(name, { forceTransport: transport });

async function follow() {
  const seen = [];
  for await (const record of await stream.readSession({ start: { from: { seqNum: 0 } } })) {
    assert.equal(record.body, `${record.seqNum}`);
    seen.push(record.seqNum);
    if (seen.length === COUNT) break;
  }
  return seen;
}

async function write() {
  const session = await stream.appendSession();
  const tickets = [];
  for (let n = 0; n < COUNT; n++) {
    const input = AppendInput.create([AppendRecord.string({ body: `${n}` })], { matchSeqNum: n });
    tickets.push(await session.submit(input));
    await sleep(3);
    if (n === COUNT / 4) console.log("go");
  }
  const acked = await Promise.all(tickets.map(async (ticket) => (await ticket.ack()).start.seqNum));
  await session.close();
  return acked;
}

const all = Array.from({ length: COUNT }, (_, index) => index);
const [seen, acked] = await Promise.all([follow(), write()]);
assert.deepEqual(acked, all);
assert.deepEqual(seen, all);
process.exit(0);
