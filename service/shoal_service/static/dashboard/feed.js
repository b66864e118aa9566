/**
 * The event feed of a stream, read by `fetch`: EventSource cannot send a key. A lost connection is made again, and
 * continues after the last event that was read.
 */

import { Away, Problem, currentKey } from "./api.js";

const QUIET_MS = 45_000; // the service sends something every 15 s
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;

/**
 * @typedef {object} FeedEvent
 * @property {string} id
 * @property {string} kind
 * @property {number|null} log_offset
 * @property {number|null} points_seen
 * @property {number[]} parents
 * @property {number[]} children
 * @property {string|null} refinement
 * @property {string|null} reason
 */

/**
 * Follow a feed until the signal aborts, or the service refuses it for good.
 * @param {string} path of the feed
 * @param {{event: (event: FeedEvent) => void, state: (state: "connecting"|"live"|"away", error?: any) => void}} tell
 * @param {AbortSignal} signal
 * @param {string} [after] id of an event; `0` begins with the oldest one
 */
export async function follow(path, tell, signal, after = "0") {
  let last = after;
  let wait = FIRST_WAIT_MS;
  while (!signal.aborted) {
    tell.state("connecting");
    try {
      for await (const event of connection(path, last, signal, () => tell.state("live"))) {
        wait = FIRST_WAIT_MS;
        last = event.id;
        tell.event(event);
      }
    } catch (error) {
      if (signal.aborted) return;
      tell.state("away", error instanceof Problem ? error : new Away());
      if (error instanceof Problem && [401, 403, 404, 410].includes(error.status)) return;
    }
    await pause(wait, signal);
    wait = Math.min(2 * wait, LONGEST_WAIT_MS);
  }
}

/**
 * The events of one connection.
 * @param {string} path
 * @param {string} last
 * @param {AbortSignal} signal
 * @param {() => void} opened
 * @returns {AsyncGenerator<FeedEvent>}
 */
async function* connection(path, last, signal, opened) {
  const quiet = new AbortController();
  let timer = setTimeout(() => quiet.abort(), QUIET_MS);
  const headers = new Headers({ Accept: "text/event-stream", "Last-Event-ID": last });
  const key = currentKey();
  if (key) headers.set("Authorization", `Bearer ${key}`);
  try {
    const both = AbortSignal.any([signal, quiet.signal]);
    const answer = await fetch(path, { headers, signal: both, cache: "no-store", credentials: "omit" });
    if (!answer.ok || !answer.body) throw new Problem(answer.status, await answer.json().catch(() => null));
    opened();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => quiet.abort(), QUIET_MS);
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = parsed(block);
        if (event) yield event;
      }
    }
  } finally {
    clearTimeout(timer);
    quiet.abort();
  }
}

/**
 * One block of a feed; null for a comment.
 * @param {string} block
 * @returns {FeedEvent|null}
 */
export function parsed(block) {
  /** @type {Record<string, string>} */
  const fields = {};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
  }
  return fields.data ? { ...JSON.parse(fields.data), id: fields.id, kind: fields.event } : null;
}

/**
 * @param {number} ms
 * @param {AbortSignal} signal
 */
function pause(ms, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms * (0.75 + 0.5 * Math.random()));
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      done(undefined);
    });
  });
}
