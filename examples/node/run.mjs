/** One run of a task: calls its handler, stops it if need be, and says how it ended. */
import { setTimeout as sleep } from "node:timers/promises";
import { inspect } from "node:util";

export const ABORT_GRACE = 2; // seconds that an aborted handler has to end

/**
 * @typedef {object} ClaimedTask As in the OpenAPI document; among others:
 * @property {string} task_id
 * @property {number} lease
 * @property {string} task_type
 * @property {Record<string, any>} parameters
 * @property {number} attempt From 1.
 * @property {number | null} timeout_seconds
 *
 * @typedef {object} Context What a handler gets besides the parameters.
 * @property {ClaimedTask} task
 * @property {AbortSignal} signal Aborted if the task is cancelled, times out or loses its lease, or the worker stops.
 * @property {(fraction: number, message?: string) => void} progress Goes out with the next heartbeat.
 *
 * @typedef {(parameters: Record<string, any>, context: Context) => unknown} Handler
 * @typedef {"cancel" | "exhausted" | "timeout" | "stop" | "lost"} AbortKind
 */

/** Throw it from a handler if another attempt would not help. Any other error is retried. */
export class PermanentError extends Error {
  name = "PermanentError";
}

/** How an aborted run is reported. One without its lease is not: the task may be another worker's now. */
const ENDINGS = {
  cancel: { status: "cancelled" },
  exhausted: { status: "failed", timed_out: true },
  timeout: { status: "failed", timed_out: true },
  stop: { status: "released" },
  lost: null,
};

/** The reason of a handler's signal. */
class Aborted extends Error {
  name = "AbortError";
  constructor(/** @type {AbortKind} */ kind, /** @type {string} */ message) {
    super(message);
    this.kind = kind;
  }
}

export class Run {
  #began = performance.now();
  #controller = new AbortController();
  /** @type {number | null} */
  #progress = null;
  #message = "";

  constructor(/** @type {ClaimedTask} */ task) {
    this.task = task;
  }

  /** What every message about this run names. */
  get lease() {
    return { task_id: this.task.task_id, lease: this.task.lease };
  }

  /** For the heartbeat. */
  get held() {
    const ran_seconds = Math.min(86_400, (performance.now() - this.#began) / 1000);
    return { ...this.lease, progress: this.#progress, message: this.#message, ran_seconds };
  }

  abort(/** @type {AbortKind} */ kind, /** @type {string} */ message) {
    this.#controller.abort(new Aborted(kind, message));
  }

  /** Obeys the answer to a heartbeat. */
  heard(/** @type {string} */ outcome, /** @type {string} */ reason) {
    if (outcome === "cancel" || outcome === "exhausted" || outcome === "lost") this.abort(outcome, reason || outcome);
  }

  /**
   * Calls the handler. Returns what to report besides the lease, or null if there is nothing to report.
   * @param {Handler} handler
   * @param {(line: string) => void} log
   */
  async ending(handler, log) {
    const { task_type, task_id, attempt, parameters, timeout_seconds } = this.task;
    const tooLong = () => this.abort("timeout", `the run took longer than its timeout of ${timeout_seconds} s`);
    const timer = timeout_seconds === null ? undefined : setTimeout(tooLong, timeout_seconds * 1000);
    const { signal } = this.#controller;
    try {
      const handling = handler(parameters, { task: this.task, signal, progress: this.#setProgress });
      const result = await Promise.race([handling, abandoned(signal)]);
      return { status: "completed", result: JSON.parse(JSON.stringify(result ?? null)) };
    } catch (error) {
      log(`${task_type} ${task_id}, attempt ${attempt}: ${signal.aborted ? signal.reason.message : error}`);
      if (signal.aborted) return endingOf(signal.reason);
      return { status: error instanceof PermanentError ? "permanent" : "failed", error: described(error) };
    } finally {
      clearTimeout(timer);
    }
  }

  #setProgress = (/** @type {number} */ fraction, message = "") => {
    this.#progress = Math.min(1, Math.max(0, Number(fraction) || 0));
    this.#message = shortened(message, 1000);
  };
}

/** Rejects some time after the signal: a handler that ignores it is not waited for. */
async function abandoned(/** @type {AbortSignal} */ signal) {
  await new Promise((resolve) => signal.addEventListener("abort", resolve));
  await sleep(ABORT_GRACE * 1000);
  throw signal.reason;
}

function endingOf(/** @type {Aborted} */ aborted) {
  const ending = ENDINGS[aborted.kind];
  return ending?.timed_out ? { ...ending, error: { ...described(aborted), type: "TimeoutError" } } : ending;
}

/** An error as the server stores it. */
export function described(/** @type {unknown} */ error) {
  const { name, message } = error instanceof Error ? error : { name: "Error", message: String(error) };
  const traceback = error instanceof Error ? inspect(error) : ""; // its stack, and what caused it
  return { type: shortened(name, 200), message: shortened(message, 100_000), traceback: shortened(traceback, 200_000) };
}

/** Within a limit of the document, and valid Unicode: a half pair would make the whole request malformed. */
function shortened(/** @type {unknown} */ text, /** @type {number} */ limit) {
  return Buffer.from(String(text).slice(0, limit)).toString();
}
