// The server conformance suite of Durable Streams against the gateway at DURABLE_URL.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

runConformanceTests({ baseUrl: process.env.DURABLE_URL, longPollTimeoutMs: Number(process.env.LONG_POLL_MS) })
