// Scenarios for the official TypeScript client, unmodified, against a running gateway.
//
//     node scenarios.mjs SCENARIO ORIGIN BASIN TRANSPORT COMPRESSION
//
// Every scenario asserts for itself; the process ends with 0 only where all of it held.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

import {
  AppendInput,
  AppendRecord,
  BatchTransform,
  FencingTokenMismatchError,
  Producer,
  RangeNotSatisfiableError,
  S2,
  S2Error,
  SeqNumMismatchError,
} from "@s2-dev/streamstore";

const [name, origin, basinName, transport, compression] = process.argv.slice(2);

const s2 = new S2({ accessToken: "a-token", endpoints: { account: origin, basin: origin }, compression });
const basin = s2.basin(basinName);
const stringInput = (bodies, options) =>
  AppendInput.create(bodies.map((body) => AppendRecord.string({ body })), options);

async function freshStream() {
  const stream = `${name}-${transport}-${compression}/${process.pid}`;
  await basin.streams.create({ stream });
  return basin.stream(stream, { forceTransport: transport });
}

async function collect(session, count) {
  const records = [];
  for await (const record of session) {
    records.push(record);
    if (records.length === count) break;
  }
  return records;
}

const scenarios = {
  async unaryStrings() {
    const stream = await freshStream();
    const ack = await stream.append(
      AppendInput.create([
        AppendRecord.string({ body: "grüße 🌊", headers: [["kind", "hello"]] }),
        AppendRecord.string({ body: "" }),
        AppendRecord.string({ body: "long ".repeat(2000) }),
      ]),
    );
    assert.deepEqual([ack.start.seqNum, ack.end.seqNum, ack.tail.seqNum], [0, 3, 3]);
    assert.equal((await stream.checkTail()).tail.seqNum, 3);
    const { records } = await stream.read({ start: { from: { seqNum: 0 } } });
    assert.deepEqual(records.map((r) => r.body), ["grüße 🌊", "", "long ".repeat(2000)]);
    assert.deepEqual(records[0].headers, [["kind", "hello"]]);
    assert.equal(records[2].timestamp.getTime(), ack.tail.timestamp.getTime());
  },

  async unaryBytes() {
    const stream = await freshStream();
    const body = Uint8Array.from({ length: 5000 }, (_, index) => index % 256);
    const headers = [[Uint8Array.of(0, 255), Uint8Array.of(10, 13)]];
    await stream.append(AppendInput.create([AppendRecord.bytes({ body, headers })]));
    const input = { start: { from: { tailOffset: 1 } } };
    const { records } = await stream.read(input, { as: "bytes" });
    assert.deepEqual(records[0].body, body);
    assert.deepEqual(records[0].headers, headers);
    const asStrings = await stream.read(input);
    assert.ok(asStrings.records[0].body.includes("\ufffd"));
  },

  async appendSession() {
    const stream = await freshStream();
    const session = await stream.appendSession();
    const tickets = [];
    // All of one size: with compression on, the client reorders frames of mixed sizes (S2 fact sheet, 7.2).
    for (let n = 0; n < 100; n++) {
      tickets.push(await session.submit(stringInput([`${n}/0`.padEnd(800, "."), `${n}/1`.padEnd(800, ".")])));
    }
    for (const [n, ticket] of tickets.entries()) {
      const ack = await ticket.ack();
      assert.deepEqual([ack.start.seqNum, ack.end.seqNum], [2 * n, 2 * n + 2]);
    }
    await session.close();
    assert.equal(session.lastAckedPosition().end.seqNum, 200);
    const input = { start: { from: { seqNum: 0 } }, stop: { limits: { count: 200 } } };
    const records = await collect(await stream.readSession(input), 200);
    assert.deepEqual(records.map((r) => r.seqNum), Array.from({ length: 200 }, (_, index) => index));
    assert.equal(records[199].body, "99/1".padEnd(800, "."));
  },

  async producer() {
    const stream = await freshStream();
    const producer = new Producer(new BatchTransform({ lingerDurationMillis: 2 }), await stream.appendSession());
    const tickets = [];
    for (let n = 0; n < 300; n++) tickets.push(await producer.submit(AppendRecord.string({ body: `${n}` })));
    await producer.close();
    const seqNums = await Promise.all(tickets.map(async (ticket) => (await ticket.ack()).seqNum()));
    assert.deepEqual(seqNums, Array.from({ length: 300 }, (_, index) => index));
  },

  async readSessionFollows() {
    const stream = await freshStream();
    await stream.append(stringInput(Array.from({ length: 50 }, (_, n) => `before ${n} `.repeat(100))));
    const session = await stream.readSession({ start: { from: { seqNum: 0 } } });
    const reading = collect(session, 53);
    await session.caughtUp();
    for (let n = 0; n < 3; n++) {
      await stream.append(stringInput([`after ${n}`]));
      await sleep(20);
    }
    const records = await reading;
    assert.deepEqual(records.slice(50).map((r) => r.body), ["after 0", "after 1", "after 2"]);
    assert.equal(session.nextReadPosition().seqNum, 53);
  },

  async readSessionOfBytes() {
    const stream = await freshStream();
    const body = Uint8Array.from({ length: 3000 }, (_, index) => (index * 7) % 256);
    const records = Array.from({ length: 20 }, () => AppendRecord.bytes({ body }));
    await stream.append(AppendInput.create(records));
    const input = { start: { from: { seqNum: 0 } }, stop: { limits: { count: 20 } } };
    const read = await collect(await stream.readSession(input, { as: "bytes" }), 20);
    assert.equal(read.length, 20);
    for (const record of read) assert.equal(Buffer.compare(record.body, body), 0); // some come as Buffer
  },

  async boundedReadSessionEnds() {
    const stream = await freshStream();
    await stream.append(stringInput(Array.from({ length: 30 }, (_, n) => `${n}`)));
    const count = async (input) => (await collect(await stream.readSession(input))).length;
    assert.equal(await count({ start: { from: { seqNum: 0 } }, stop: { limits: { count: 7 } } }), 7);
    assert.equal(await count({ start: { from: { tailOffset: 4 } }, stop: { waitSecs: 0 } }), 4);
    assert.equal(await count({ start: { from: { seqNum: 0 } }, stop: { limits: { bytes: 36 } } }), 4);
  },

  async conditions() {
    const stream = await freshStream();
    await stream.append(stringInput(["0"], { matchSeqNum: 0 }));
    await assert.rejects(stream.append(stringInput(["no"], { matchSeqNum: 5 })), (error) => {
      assert.ok(error instanceof SeqNumMismatchError, String(error));
      assert.equal(error.expectedSeqNum, 1);
      return true;
    });
    await stream.append(AppendInput.create([AppendRecord.fence("me")]));
    await stream.append(stringInput(["mine"], { fencingToken: "me" }));
    await assert.rejects(stream.append(stringInput(["no"], { fencingToken: "you" })), (error) => {
      assert.ok(error instanceof FencingTokenMismatchError, String(error));
      assert.equal(error.expectedFencingToken, "me");
      return true;
    });
    await stream.append(AppendInput.create([AppendRecord.trim(2)]));
    let first;
    for (let tries = 0; tries < 100; tries++) {
      first = (await stream.read({ start: { from: { seqNum: 0 } }, ignoreCommandRecords: true })).records[0];
      if (first.seqNum === 2) break;
      await sleep(50);
    }
    assert.deepEqual([first.seqNum, first.body], [2, "mine"]);
  },

  async sessionCondition() {
    const stream = await freshStream();
    const session = await stream.appendSession();
    const good = await session.submit(stringInput(["0"], { matchSeqNum: 0 }));
    const bad = await session.submit(stringInput(["no"], { matchSeqNum: 9 }));
    assert.equal((await good.ack()).end.seqNum, 1);
    await assert.rejects(bad.ack(), (error) => {
      assert.ok(error instanceof SeqNumMismatchError, String(error));
      assert.equal(error.expectedSeqNum, 1);
      return true;
    });
    await session.close().catch(() => {});
    assert.equal((await stream.checkTail()).tail.seqNum, 1);
  },

  async errors() {
    const stream = await freshStream();
    const refuses = (promise, status, code) =>
      assert.rejects(promise, (error) => {
        assert.ok(error instanceof S2Error, String(error));
        assert.deepEqual([error.status, error.code, error.origin], [status, code, "server"], error.message);
        return true;
      });
    const nope = basin.stream("nope", { forceTransport: transport });
    await refuses(nope.checkTail(), 404, "stream_not_found");
    await refuses(nope.append(stringInput(["x"])), 404, "stream_not_found");
    await refuses(nope.read({ start: { from: { seqNum: 0 } } }), 404, "stream_not_found");
    await refuses(s2.basin("no-such-basin").stream("s").append(stringInput(["x"])), 404, "basin_not_found");
    await refuses(s2.accessTokens.list(), 501, "not_implemented");
    await assert.rejects(stream.read({ start: { from: { seqNum: 4 } } }), RangeNotSatisfiableError);
    await assert.rejects(async () => {
      await collect(await stream.readSession({ start: { from: { seqNum: 4 } } }), 1);
    }, RangeNotSatisfiableError);
    await assert.rejects(async () => {
      await collect(await nope.readSession({ start: { from: { seqNum: 0 } } }), 1);
    }, (error) => error.status === 404);
  },

  async controlPlane() {
    const other = `${basinName}-ts-${transport}`;
    assert.equal((await s2.basins.ensure({ basin: other })).result, "created");
    assert.equal((await s2.basins.ensure({ basin: other })).result, "noop");
    const config = { createStreamOnAppend: true };
    assert.equal((await s2.basins.ensure({ basin: other, config })).result, "updated");
    assert.equal((await s2.basins.getConfig({ basin: other })).createStreamOnAppend, true);
    await s2.basin(other).stream("auto/matic").append(stringInput(["x"]));
    const listed = await s2.basin(other).streams.list({ prefix: "auto" });
    assert.deepEqual([listed.streams.map((s) => s.name), listed.hasMore], [["auto/matic"], false]);
    const changed = await s2.basin(other).streams.reconfigure({ stream: "auto/matic", retentionPolicy: { ageSecs: 60 } });
    assert.deepEqual(changed.retentionPolicy, { ageSecs: 60 });
    const made = await s2.basin(other).streams.ensure({ stream: "b", config: { timestamping: { mode: "arrival" } } });
    assert.equal(made.result, "created");
    assert.equal((await s2.basin(other).streams.getConfig({ stream: "b" })).timestamping.mode, "arrival");
    await assert.rejects(s2.basin(other).streams.create({ stream: "b" }), (error) => error.status === 409);
    await s2.basin(other).streams.delete({ stream: "b" });
    await s2.basins.delete({ basin: other });
  },
};

const deadline = globalThis.setTimeout(() => {
  console.error("the scenario did not end");
  process.exit(3);
}, 45_000);
await scenarios[name]();
clearTimeout(deadline);
process.exit(0); // the client keeps its connections open
