#!/usr/bin/env node
/**
 * A Dibs worker in Node, written from the OpenAPI document of `dibs serve`. It needs Node 18 and no packages.
 *
 * Import `Worker` and give it your handlers, or run this file for those at its end.
 */
import { randomBytes } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { ANSWER_WAIT, Api, LONGEST_BACKOFF } from "./api.mjs";
import { ABORT_GRACE, described, PermanentError, Run } from "./run.mjs";

export { PermanentError };

const MOST = 1000; // tasks in one claim, results in one report, leases in one heartbeat
const CLAIM_WAIT = 20; // seconds
const WORKERS = "/api/v1/workers";

export class Worker {
  /** @type {Map<string, Run>} By task and lease. A run is in here, and beaten for, until its end has been reported. */
  #running = new Map();
  /** @type {{result: any, done: (value?: unknown) => void}[]} */
  #outbox = [];
  #isSending = false;
  #state = "active";
  #sequence = Date.now() * 1000; // unlike those of an earlier process
  #changes = new EventEmitter();
  #stopping = new AbortController(); // no more claims
  #isHurried = false; // running tasks have `graceSeconds`
  #left = new AbortController();

  /**
   * @param {object} options
   * @param {string} options.url
   * @param {string} [options.token]
   * @param {Record<string, import("./run.mjs").Handler>} options.handlers By task type.
   * @param {string[]} [options.queues]
   * @param {string[]} [options.capabilities]
   * @param {number} [options.capacity] How many tasks to run at once.
   * @param {number} [options.leaseSeconds] How long a task stays ours without a heartbeat.
   * @param {number} [options.beatSeconds] At most what the server asks for, and a third of the lease.
   * @param {number} [options.graceSeconds] How long tasks may go on after `stop()`.
   * @param {(line: string) => void} [options.log]
   */
  constructor({ url, token = "", handlers, queues = ["default"], capabilities = [], capacity = 10, ...more }) {
    this.id = `node-${hostname().slice(0, 60)}-${process.pid}-${randomBytes(3).toString("hex")}`;
    this.handlers = new Map(Object.entries(handlers));
    this.capacity = Math.min(capacity, MOST);
    this.about = { worker_id: this.id, queues, capabilities, capacity: this.capacity };
    this.leaseSeconds = more.leaseSeconds ?? 30;
    this.beatSeconds = Math.min(more.beatSeconds ?? Infinity, this.leaseSeconds / 3);
    this.graceSeconds = more.graceSeconds ?? 25;
    this.log = more.log ?? ((line) => console.error(`${new Date().toISOString()} ${line}`));
    this.api = new Api(url, token, this.log);
    this.path = `${WORKERS}/${encodeURIComponent(this.id)}`;
  }

  /** Works until it is stopped, or drained by an operator. Rejects if the server refuses it. */
  async run() {
    const { signal } = this.#stopping;
    const unlessStopping = (/** @type {Error} */ error) => {
      if (!signal.aborted) throw error;
    };
    await this.#register(signal).catch(unlessStopping);
    if (signal.aborted) return;
    this.log(`worker ${this.id} serves ${this.about.queues} of ${this.api.url}`);
    const beating = this.#beatUntilLeft();
    try {
      while (!signal.aborted) await this.#claim(signal).catch(unlessStopping);
    } finally {
      await this.#leave();
      await beating;
    }
  }

  /** Claims nothing more. What does not end in `graceSeconds` is handed back. */
  stop() {
    this.#isHurried = true;
    this.#stopping.abort();
    this.#changes.emit("change");
  }

  async #register(/** @type {AbortSignal} */ signal) {
    const origin = { host: hostname(), version: `node ${process.version}` };
    const about = { ...this.about, ...origin, task_types: [...this.handlers.keys()] };
    const answer = await this.api.retry(signal, () => this.api.call("POST", `${WORKERS}/register`, about));
    this.beatSeconds = Math.min(this.beatSeconds, answer.beat_seconds);
    this.#obey(answer.state);
  }

  /** Paused: claims nothing until it is active again. Draining: finishes what it has, however long that takes. */
  #obey(/** @type {string} */ state) {
    if (state !== this.#state) this.log(`the worker is ${state}`);
    this.#state = state;
    if (state === "draining") this.#stopping.abort();
    this.#changes.emit("change");
  }

  async #until(/** @type {() => boolean} */ condition) {
    while (!condition()) await once(this.#changes, "change");
  }

  /** Claims as much as there is room for, once there is room. */
  async #claim(/** @type {AbortSignal} */ signal) {
    await this.#until(() => signal.aborted || (this.#state === "active" && this.#running.size < this.capacity));
    if (signal.aborted) return;
    const limit = this.capacity - this.#running.size;
    const claim = { limit, wait: CLAIM_WAIT, lease_seconds: this.leaseSeconds, sequence: ++this.#sequence };
    const limits = { signal, seconds: CLAIM_WAIT + ANSWER_WAIT };
    const began = performance.now();
    try {
      const answer = await this.api.retry(signal, (tries) =>
        this.api.call("POST", `${this.path}/claim`, { ...claim, repeat: tries > 0 }, limits),
      );
      for (const task of answer.tasks) void this.#run(new Run(task));
      this.#obey(answer.state);
      const isHasty = !answer.tasks.length && performance.now() - began < 500; // a server that stops answers at once
      if (isHasty) await sleep(500 + 500 * Math.random(), undefined, { signal });
    } catch (error) {
      if (signal.aborted) await this.#handBackClaimed();
      else if (error.isUnknownWorker) await this.#register(signal);
      else throw error;
    }
  }

  /** The answer to a claim that was cut off may have been on its way: asks for its tasks, and for no others. */
  async #handBackClaimed() {
    const again = { sequence: this.#sequence, repeat: true, task_types: [] };
    const answer = await this.api.call("POST", `${this.path}/claim`, again).catch(() => ({ tasks: [] }));
    const results = answer.tasks.map((task) => ({ ...new Run(task).lease, status: "released" }));
    if (results.length) await this.#deliver(results);
  }

  async #leave() {
    const idle = this.#until(() => this.#running.size === 0);
    if (this.#state === "draining") await Promise.race([idle, this.#until(() => this.#isHurried)]);
    await within(this.graceSeconds, idle);
    for (const run of this.#running.values()) run.abort("stop", "the worker stops");
    await within(ABORT_GRACE + LONGEST_BACKOFF, idle);
    await this.api.call("DELETE", this.path).catch((error) => this.log(`could not leave: ${error.message}`));
    this.#left.abort();
  }

  async #beatUntilLeft() {
    const { signal } = this.#left;
    while (!signal.aborted) {
      try {
        await sleep(this.beatSeconds * 1000, undefined, { signal });
        await this.api.retry(signal, () => this.#beat());
      } catch (error) {
        if (error.isUnknownWorker) await this.#register(signal).catch(() => {});
        else if (!signal.aborted) this.log(`heartbeat: ${error.message}`);
      }
    }
  }

  async #beat() {
    const runs = [...this.#running.values()];
    const tasks = runs.map((run) => ({ ...run.held, extend_seconds: this.leaseSeconds }));
    const answer = await this.api.call("POST", `${this.path}/heartbeat`, { tasks });
    answer.tasks.forEach(({ outcome, reason }, index) => runs[index].heard(outcome, reason));
    this.#obey(answer.state);
  }

  async #run(/** @type {Run} */ run) {
    const key = `${run.task.task_id}/${run.task.lease}`;
    this.#running.set(key, run);
    const ending = await run.ending(this.handlers.get(run.task.task_type), this.log);
    if (ending !== null) await this.#report({ ...run.lease, ...ending });
    this.#running.delete(key);
    this.#changes.emit("change");
  }

  /** Resolves once the server has the result. What ends while others are on their way goes out together. */
  async #report(/** @type {object} */ result) {
    const delivered = new Promise((done) => this.#outbox.push({ result, done }));
    if (!this.#isSending) {
      this.#isSending = true;
      while (this.#outbox.length) {
        const batch = this.#outbox.splice(0, MOST);
        await this.#deliver(batch.map((each) => each.result));
        for (const each of batch) each.done();
      }
      this.#isSending = false;
    }
    await delivered;
  }

  /** Repeating a report does no harm. A result that the server can't take makes its task fail for good. */
  async #deliver(/** @type {any[]} */ results) {
    try {
      const send = () => this.api.call("POST", `${this.path}/results`, { results });
      const answer = await this.api.retry(this.#left.signal, send);
      for (const { task_id, outcome, reason } of answer.results) {
        if (outcome === "refused") this.log(`the end of ${task_id} is dropped: ${reason}`);
      }
    } catch (error) {
      const [{ task_id, lease, status }] = results;
      const isUnfit = [400, 413, 422].includes(error.status);
      if (isUnfit && results.length > 1) for (const each of results) await this.#deliver([each]);
      else if (isUnfit && status === "completed") {
        await this.#deliver([{ task_id, lease, status: "permanent", error: described(error) }]);
      } else this.log(`the ends of ${results.length} runs are dropped: ${error.message}`);
    }
  }
}

/** Waits for a promise, but no longer than this. */
async function within(/** @type {number} */ seconds, /** @type {Promise<unknown>} */ promise) {
  const timer = new AbortController();
  await Promise.race([promise, sleep(seconds * 1000, undefined, { signal: timer.signal }).catch(() => {})]);
  timer.abort();
}

/** @type {Record<string, import("./run.mjs").Handler>} */
const examples = {
  "node.echo": (parameters) => parameters,
  "node.sleep": async ({ seconds = 1 }, { signal, progress }) => {
    for (let step = 1; step <= 10; step++) {
      await sleep(seconds * 100, undefined, { signal });
      progress(step / 10, `step ${step} of 10`);
    }
    return { slept: seconds };
  },
  "node.fail": ({ message = "as asked", permanent = false }) => {
    throw permanent ? new PermanentError(message) : new RangeError(message);
  },
};

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const number = (name) => (process.env[name] ? Number(process.env[name]) : undefined);
  const worker = new Worker({
    url: process.env.DIBS_URL ?? "http://127.0.0.1:8642",
    token: process.env.DIBS_TOKEN,
    queues: process.env.DIBS_QUEUES?.split(","),
    capacity: number("DIBS_CAPACITY"),
    leaseSeconds: number("DIBS_LEASE_SECONDS"),
    beatSeconds: number("DIBS_BEAT_SECONDS"),
    graceSeconds: number("DIBS_GRACE_SECONDS"),
    handlers: examples,
  });
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => worker.stop());
  await worker.run();
  process.exit(); // even if a handler ignores its signal
}
