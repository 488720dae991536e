// kafkajs against a gateway: node kafka.mjs BROKER TOPIC. It prints the records that a group's consumer gets, as JSON.
import { Kafka, logLevel, Partitioners } from "kafkajs";

const [broker, topic] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "peer", brokers: [broker], logLevel: logLevel.WARN });

const admin = kafka.admin();
await admin.connect();
await admin.createTopics({ topics: [{ topic, numPartitions: 1 }] });

const producer = kafka.producer({ idempotent: true, createPartitioner: Partitioners.DefaultPartitioner });
await producer.connect();
const [sent] = await producer.send({
  topic,
  messages: [
    { key: "a", value: "1", headers: { h: "x" } },
    { key: null, value: null },
  ],
});
if (sent.baseOffset !== "0") throw new Error(JSON.stringify(sent));

const consumer = kafka.consumer({ groupId: `${topic}-group` });
await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
const found = [];
await new Promise((resolve) =>
  consumer.run({
    eachMessage: async ({ message: { offset, key, value, headers } }) => {
      found.push([offset, key && key.toString(), value && value.toString(), String(headers.h ?? "")]);
      if (found.length === 2) resolve();
    },
  }),
);
await consumer.disconnect();
await producer.disconnect();
console.log(JSON.stringify({ found, partitions: (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length }));
await admin.disconnect();
