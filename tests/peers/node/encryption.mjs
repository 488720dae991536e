// The official TypeScript client with an encrypted stream, unmodified, against a running server.
//
//     node encryption.mjs ORIGIN BASIN CIPHER TRANSPORT

import assert from "node:assert/strict";

import { AppendInput, AppendRecord, S2, S2Error } from "@s2-dev/streamstore";

const [origin, basinName, cipher, transport] = process.argv.slice(2);
const s2 = new S2({ accessToken: "a-token", endpoints: { account: origin, basin: origin } });
await s2.basins.create({ basin: basinName, config: { streamCipher: cipher } });
const basin = s2.basin(basinName);
await basin.streams.create({ stream: "s" });
const { streams } = await basin.streams.list();
assert.deepEqual(streams.map((each) => [each.name, each.cipher]), [["s", cipher]]);

const key = (byte) => new Uint8Array(32).fill(byte);
const opened = (encryptionKey) => basin.stream("s", { forceTransport: transport, encryptionKey });
const input = (...bodies) => AppendInput.create(bodies.map((body) => AppendRecord.string({ body })));

const mine = opened(key(1));
await mine.append(input("one", "two"));
const session = await mine.appendSession();
await (await session.submit(input("three"))).ack();
await session.close();
const { records } = await mine.read({ start: { from: { seqNum: 0 } } });
assert.deepEqual(records.map((each) => each.body), ["one", "two", "three"]);

const collect = async (stream) => {
  const found = [];
  const reading = await stream.readSession({ start: { from: { seqNum: 0 } }, stop: { limits: { count: 3 } } });
  for await (const record of reading) found.push(record.body);
  return found;
};
assert.deepEqual(await collect(mine), ["one", "two", "three"]);

const code = (expected) => (error) => {
  assert.ok(error instanceof S2Error, String(error));
  assert.equal(error.status, 400, error.message);
  assert.ok(`${error.code} ${error.message}`.includes(expected), `${error.code} ${error.message}`);
  return true;
};
const others = opened(key(2));
await assert.rejects(others.read({ start: { from: { seqNum: 0 } } }), code("decryption_failed"));
if (transport === "s2s") await assert.rejects(collect(others), code("decryption_failed"));  // the other retries
const none = opened(undefined);
await assert.rejects(none.append(input("x")), code("missing encryption key"));
await assert.rejects(none.read({ start: { from: { seqNum: 0 } } }), code("missing encryption key"));
assert.equal((await none.checkTail()).tail.seqNum, 3);
process.exit(0); // the client keeps its connections open
