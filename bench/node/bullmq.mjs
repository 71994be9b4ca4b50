// BullMQ's side of the Redis comparison: one queue, jobs removed as they complete. ioredis' enableAutoPipelining stays
// off, as it is by default: with it, both callers and the worker were slower.

import { load, main, tellDone, tellStarted, url } from "./peers.mjs";

const { Queue, Worker } = load("bullmq");

const { hostname, port } = new URL(url);
const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
const concurrency = 100;

const tasks = {
  nothing: async (job) => {
    tellDone();
    return job.data.number;
  },
  started: async () => tellStarted(),
};

let queue;

await main({
  open: async (command) => {
    if (command === "work") return;
    queue = new Queue("bench", { connection, defaultJobOptions: { removeOnComplete: true } });
    await queue.waitUntilReady();
  },
  close: () => queue.close(),
  install: () => {},
  enqueue: (name, number) => queue.add(name, { number }),
  enqueueMany: (numbers) => queue.addBulk(numbers.map((number) => ({ name: "nothing", data: { number } }))),
  work: async () => {
    const worker = new Worker("bench", (job) => tasks[job.name](job), { connection, concurrency });
    worker.on("error", (error) => console.error(error));
    await new Promise(() => {});
  },
});
