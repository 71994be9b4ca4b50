// What the programs of all contestants in Node have in common; peers.py is the same for Python, and says what the
// commands are. BENCH_NODE is the directory whose node_modules has the packages.

import { createSocket } from "node:dgram";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

export const url = process.env.BENCH_URL;
export const load = createRequire(`${process.env.BENCH_NODE}/`);

const CALLERS = 64;
const BULK = 1000;
const last = Number(process.env.BENCH_COUNT ?? 0);
let done = 0;

// Seconds since 1970, finer than Date.now().
const now = () => (performance.timeOrigin + performance.now()) / 1000;

function tell(moment) {
  const socket = createSocket("udp4");
  socket.send(String(moment), Number(process.env.BENCH_PORT), "127.0.0.1", () => socket.close());
}

// In a no-op task: the first and the last of them tell.
export function tellDone() {
  done += 1;
  if (done === 1 || done === last) tell(now());
}

export const tellStarted = () => tell(now());

async function timed(count, work) {
  const began = performance.now();
  await work();
  console.log((count / (performance.now() - began)) * 1000);
}

async function one(peer, count) {
  await peer.enqueue("nothing", 0);
  await timed(count, async () => {
    for (let number = 0; number < count; number++) await peer.enqueue("nothing", number);
  });
}

async function callers(peer, count) {
  const each = Math.max(1, Math.floor(count / CALLERS));
  const all = (call) => Promise.all(Array.from({ length: CALLERS }, call));
  await all(() => peer.enqueue("nothing", 0));
  await timed(CALLERS * each, () =>
    all(async () => {
      for (let number = 0; number < each; number++) await peer.enqueue("nothing", number);
    }),
  );
}

async function bulk(peer, count) {
  await timed(count, async () => {
    for (let start = 0; start < count; start += BULK) {
      const size = Math.min(BULK, count - start);
      await peer.enqueueMany(Array.from({ length: size }, (_, index) => start + index));
    }
  });
}

async function starts(peer) {
  for await (const _ of createInterface({ input: process.stdin })) {
    const sent = now();
    await peer.enqueue("started", 0);
    console.log(sent);
  }
}

const COMMANDS = { install: (peer) => peer.install(), one, callers, bulk, starts, work: (peer) => peer.work() };

export async function main(peer) {
  const [command, count] = process.argv.slice(2);
  await peer.open(command);
  await COMMANDS[command](peer, Number(count ?? 0));
  if (command === "work") return;
  await peer.close();
  process.exit(0);
}
