/** Requests to the service, with the key of this tab, and their errors in plain words. */

const KEY = "shoal.key";
const TIMEOUT_MS = 40_000;

/** An answer that is an error. */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {any} body
   */
  constructor(status, body) {
    super(body?.detail ?? body?.title ?? `the service answered ${status}`);
    this.status = status;
    /** @type {string} */
    this.kind = String(body?.type ?? "").replace("/problems/", "");
    /** @type {boolean} */
    this.retryable = Boolean(body?.retryable);
  }
}

/** The service did not answer, or its answer broke off. */
export class Away extends Error {
  constructor() {
    super("The service does not answer. It may be stopped, or starting. This page tries again by itself.");
  }
}

/** Tells `key` when a request was refused for want of a key, and when a key is entered or removed. */
export const keys = new EventTarget();

export function currentKey() {
  return sessionStorage.getItem(KEY);
}

/** @param {string|null} key */
export function setKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
  keys.dispatchEvent(new Event("changed"));
}

/**
 * Send a request. Raises Problem, or Away.
 * @param {string} path
 * @param {RequestInit & {timeoutMs?: number}} [options]
 * @returns {Promise<Response>}
 */
export async function request(path, options = {}) {
  const headers = new Headers(options.headers);
  const key = currentKey();
  if (key) headers.set("Authorization", `Bearer ${key}`);
  const limit = AbortSignal.timeout(options.timeoutMs ?? TIMEOUT_MS);
  const signal = options.signal ? AbortSignal.any([options.signal, limit]) : limit;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, signal, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Away();
  }
  if (answer.ok || answer.status === 304) return answer;
  if (answer.status === 401) keys.dispatchEvent(new Event("needed"));
  throw new Problem(answer.status, await answer.json().catch(() => null));
}

/**
 * @param {string} path
 * @param {AbortSignal} [signal]
 */
export async function get(path, signal) {
  return readJson(await request(path, { signal }), signal);
}

/**
 * The JSON body of an answer. Raises Away if it breaks off.
 * @param {Response} answer
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function readJson(answer, signal) {
  try {
    return await answer.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Away();
  }
}

/**
 * Send JSON and read the JSON answer; null for an answer without a body.
 * @param {string} method
 * @param {string} path
 * @param {any} [body]
 * @param {{signal?: AbortSignal, headers?: Record<string, string>}} [options]
 */
export async function send(method, path, body, options = {}) {
  const headers = { ...options.headers, ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
  const text = body === undefined ? undefined : JSON.stringify(body);
  const answer = await request(path, { method, headers, body: text, signal: options.signal });
  return answer.status === 204 ? null : readJson(answer, options.signal);
}

/**
 * A reader of one path that asks again only for what has changed. It returns the same object for the same state.
 * @param {string} path
 */
export function tagged(path) {
  /** @type {string|null} */
  let tag = null;
  /** @type {any} */
  let current = null;
  return async (/** @type {AbortSignal|undefined} */ signal) => {
    const answer = await request(path, { signal, headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status !== 304) {
      current = await readJson(answer, signal);
      tag = answer.headers.get("ETag");
    }
    return current;
  };
}

/** @type {Promise<any>|null} */
let description = null;

/**
 * Whether this service has an operation, by its OpenAPI description.
 * @param {string} path
 * @param {string} method
 */
export async function offers(path, method) {
  description ??= get("/openapi.json").catch(() => {
    description = null;
    return { paths: {} };
  });
  return Boolean((await description).paths[path]?.[method]);
}

/** The OpenAPI schema of the settings of a stream. */
export async function settingsSchema() {
  await offers("/", "get");
  const body = (await description)?.paths?.["/streams/{stream}"]?.put?.requestBody;
  return body?.content["application/json"].schema ?? { properties: {} };
}

/**
 * The OpenAPI schema of each kind of source, by kind.
 * @returns {Promise<[string, any][]>}
 */
export async function sourceSchemas() {
  await offers("/", "get");
  const all = await description;
  const body = all?.paths?.["/streams/{stream}/sources/{source}"]?.put?.requestBody;
  const kinds = body?.content["application/json"].schema.discriminator.mapping ?? {};
  const schemas = Object.entries(kinds).map(([kind, place]) => [kind, all.components.schemas[place.split("/").pop()]]);
  return /** @type {[string, any][]} */ (schemas);
}

/** @param {string} stream */
export function streamPath(stream) {
  return `/streams/${encodeURIComponent(stream)}`;
}

/**
 * What an error means for the person who reads it.
 * @param {any} error
 */
export function inWords(error) {
  if (error instanceof Problem) {
    if (error.status === 401) return "This service needs an access key, or the key is not valid any more. Press “Key” to enter one.";
    if (error.status === 403) return `The key may not do this. ${sentence(error.message)}`;
    if (error.status === 429) return "The key is over one of its limits. This page tries again by itself.";
    return sentence(error.message);
  }
  return error instanceof Error ? sentence(error.message) : String(error);
}

/** @param {string} text */
function sentence(text) {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}
