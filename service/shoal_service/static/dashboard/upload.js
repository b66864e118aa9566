/** Points sent in batches: each is stored once, also if a connection is lost and the batch is sent again. */

import { Away, Problem, readJson, request } from "./api.js";
import { bodyOf } from "./tables.js";

const BATCH_NUMBERS = 200_000;
const BATCH_ROWS = 10_000;
const ATTEMPTS = 6;

/**
 * Send a table to be learned. Gives the log offset of its end.
 * @param {string} path of the stream
 * @param {import("./tables.js").Table} table
 * @param {(sent: number) => void} progress
 * @param {AbortSignal} signal
 * @returns {Promise<number>}
 */
export async function ingest(path, table, progress, signal) {
  const name = crypto.randomUUID?.() ?? String(Math.random());
  const step = Math.max(1, Math.min(BATCH_ROWS, Math.floor(BATCH_NUMBERS / table.d)));
  let end = 0;
  for (let from = 0; from < table.n; from += step) {
    const to = Math.min(from + step, table.n);
    const { body, kind } = bodyOf(table, from, to);
    const headers = { "Content-Type": kind, "Idempotency-Key": `${name}.${from}` };
    const post = async () => readJson(await request(`${path}/ingest`, { method: "POST", headers, body, signal }), signal);
    end = (await again(post, signal)).log_offset;
    progress(to);
  }
  return end;
}

/**
 * Scores of the first rows of a table.
 * @param {string} path of the stream
 * @param {import("./tables.js").Table} table
 * @param {number} most rows
 * @param {AbortSignal} signal
 * @returns {Promise<{components: number[], novelty: number[], log_density: number[], born: boolean[]}>}
 */
export async function score(path, table, most, signal) {
  const { body, kind } = bodyOf({ ...table, keys: null }, 0, Math.min(table.n, most));
  const headers = { "Content-Type": kind };
  return readJson(await request(`${path}/score`, { method: "POST", headers, body, signal }), signal);
}

/**
 * @param {() => Promise<any>} run
 * @param {AbortSignal} signal
 */
async function again(run, signal) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await run();
    } catch (error) {
      const passing = error instanceof Away || (error instanceof Problem && error.retryable);
      if (!passing || attempt === ATTEMPTS || signal.aborted) throw error;
      await new Promise((done) => setTimeout(done, 400 * 2 ** attempt));
    }
  }
}
