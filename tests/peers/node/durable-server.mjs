// The reference server of Durable Streams: node durable-server.mjs PORT [DIRECTORY]; without a directory, in memory.
import { DurableStreamTestServer } from "@durable-streams/server";

const [port, dataDir] = process.argv.slice(2);
const server = new DurableStreamTestServer({ port: Number(port), host: "127.0.0.1", dataDir });
await server.start();
console.log("listening");
