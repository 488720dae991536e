// Metrics and locations with the official TypeScript client, unmodified, against a running gateway.
//
//     node metrics.mjs ORIGIN BASIN STREAM

import assert from "node:assert/strict";

import { AppendInput, AppendRecord, S2, S2Error } from "@s2-dev/streamstore";

const [origin, basin, stream] = process.argv.slice(2);
const s2 = new S2({ accessToken: "a-token", endpoints: { account: origin, basin: origin } });
const body = "x".repeat(92);
await s2.basin(basin).stream(stream).append(AppendInput.create([AppendRecord.string({ body })]));

const end = new Date();
const hour = { start: new Date(end.getTime() - 3_600_000), end };
const active = await s2.metrics.account({ set: "active-basins", ...hour });
assert.ok(JSON.stringify(active).includes(basin), JSON.stringify(active));
for (const interval of ["minute", "hour", "day"]) {
  const { values } = await s2.metrics.account({ set: "account-ops", interval, ...hour });
  assert.ok(values.length > 0);
}
const appended = await s2.metrics.basin({ basin, set: "append-throughput", ...hour });
assert.ok(JSON.stringify(appended).includes("express"), JSON.stringify(appended));
assert.ok(/\b100\b/.test(JSON.stringify(appended)), JSON.stringify(appended));
for (const set of ["storage", "append-ops", "read-ops", "read-throughput", "basin-ops"]) {
  await s2.metrics.basin({ basin, set, ...hour });
}
const stored = await s2.metrics.stream({ basin, stream, set: "storage", ...hour });
assert.equal(stored.values.length, 1);
await assert.rejects(
  s2.metrics.basin({ basin, set: "storage", start: hour.end, end: hour.start }),
  (error) => error instanceof S2Error && error.status === 422,
);

const here = await s2.locations.getDefault();
assert.deepEqual(await s2.locations.list(), [here]);
assert.equal(here.name, "penstock");
process.exit(0); // the client keeps its connections open
