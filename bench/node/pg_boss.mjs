// pg-boss's side of the PostgreSQL comparison: batches with no pause between full ones. NOTIFY, which is off unless
// asked for, is on only for the task whose start is waited for: with it, many callers at once were slower.

import { load, main, tellDone, tellStarted, url } from "./peers.mjs";

const { PgBoss } = load("pg-boss");

const BATCHES = { batchSize: 500, localConcurrency: 4, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
const boss = new PgBoss({ connectionString: url, max: 20, useListenNotify: true });
boss.on("error", (error) => console.error(error));

await main({
  open: () => boss.start(),
  close: () => boss.stop({ graceful: false }),
  install: async () => {
    await boss.createQueue("nothing");
    await boss.createQueue("started", { notify: true });
  },
  enqueue: (name, number) => boss.send(name, { number }),
  enqueueMany: (numbers) => boss.insert("nothing", numbers.map((number) => ({ data: { number } }))),
  work: async () => {
    await boss.work("started", { pollingIntervalSeconds: 0.5 }, async () => tellStarted());
    await boss.work("nothing", BATCHES, async (jobs) => jobs.forEach(tellDone));
    await new Promise(() => {});
  },
});
