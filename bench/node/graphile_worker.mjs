// graphile-worker's side of the PostgreSQL comparison, with the settings that its documentation gives for throughput:
// jobs are fetched into a local queue and completions go in batches.

import { load, main, tellDone, tellStarted, url } from "./peers.mjs";

const { Logger, WorkerPreset, makeWorkerUtils, run } = load("graphile-worker");

const preset = {
  extends: [WorkerPreset],
  worker: {
    connectionString: url,
    logger: new Logger(() => () => {}),
    concurrentJobs: 24,
    maxPoolSize: 26,
    localQueue: { size: 2000 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};

const taskList = {
  nothing: async (payload) => {
    tellDone();
    return payload.number;
  },
  started: async () => tellStarted(),
};

let utils;

await main({
  open: async () => {
    utils = await makeWorkerUtils({ preset });
  },
  close: () => utils.release(),
  install: () => utils.migrate(),
  enqueue: (name, number) => utils.addJob(name, { number }),
  enqueueMany: (numbers) => utils.addJobs(numbers.map((number) => ({ identifier: "nothing", payload: { number } }))),
  work: async () => {
    const runner = await run({ preset, taskList });
    await runner.promise;
  },
});
