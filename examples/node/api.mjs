/** The HTTP side of the worker: one request, and repeating it while the server is away or busy. */
import { setTimeout as sleep } from "node:timers/promises";

export const ANSWER_WAIT = 10; // seconds without an answer after which a request counts as lost
export const LONGEST_BACKOFF = 5; // seconds

/** The server is away or busy: the request may be repeated. */
export class Unavailable extends Error {
  constructor(/** @type {string} */ message, retryAfter = 0) {
    super(message);
    this.retryAfter = retryAfter;
  }
}

/** The server refused a request, with a problem document (RFC 9457). */
export class Refused extends Error {
  name = "Refused";
  constructor(/** @type {number} */ status, /** @type {any} */ problem) {
    super(`${problem.title ?? "refused"} (${status}): ${problem.detail ?? ""}`);
    this.status = status;
    this.isUnknownWorker = status === 404 && String(problem.type).endsWith("#unknown-worker");
  }
}

export class Api {
  constructor(/** @type {string} */ url, /** @type {string} */ token, /** @type {(line: string) => void} */ log) {
    this.url = new URL(url).href.replace(/\/$/, "");
    this.headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
    this.log = log;
  }

  /**
   * One request: its answer, or `Unavailable`, or `Refused`.
   * @param {string} method
   * @param {string} path
   * @param {object} [body]
   * @param {{signal?: AbortSignal, seconds?: number}} [limits]
   * @returns {Promise<any>}
   */
  async call(method, path, body, { signal, seconds = ANSWER_WAIT } = {}) {
    const controller = new AbortController();
    const abort = () => controller.abort(signal?.reason);
    const timer = setTimeout(() => controller.abort(new Error(`no answer in ${seconds} s`)), seconds * 1000);
    signal?.addEventListener("abort", abort);
    if (signal?.aborted) abort();
    try {
      const request = { method, headers: this.headers, body: JSON.stringify(body), signal: controller.signal };
      const response = await fetch(this.url + path, request);
      return answerOf(response, await response.text());
    } catch (error) {
      if (error instanceof Refused || error instanceof Unavailable) throw error;
      throw new Unavailable(error.cause?.message || error.message); // no connection, or half an answer
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }

  /**
   * Repeats a request until it is answered or refused, with growing random pauses after those that the server asks for.
   * @param {AbortSignal} signal Ends it.
   * @param {(tries: number) => Promise<any>} attempt
   */
  async retry(signal, attempt) {
    for (let tries = 0; ; tries++) {
      try {
        return await attempt(tries);
      } catch (error) {
        if (!(error instanceof Unavailable) || signal.aborted) throw error;
        if (tries === 0) this.log(`the server is not available: ${error.message}`);
        const seconds = error.retryAfter + Math.random() * Math.min(LONGEST_BACKOFF, 0.2 * 2 ** tries);
        await sleep(seconds * 1000, undefined, { signal });
      }
    }
  }
}

function answerOf(/** @type {Response} */ response, /** @type {string} */ text) {
  if (response.ok) return text ? JSON.parse(text) : null;
  if (response.status === 429 || response.status >= 500) {
    throw new Unavailable(`it answers ${response.status}`, Number(response.headers.get("Retry-After")) || 0);
  }
  const isProblem = response.headers.get("Content-Type")?.startsWith("application/problem+json");
  throw new Refused(response.status, isProblem ? JSON.parse(text) : { detail: text.slice(0, 200) });
}
