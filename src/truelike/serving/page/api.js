// Requests to the server: the API key, what is tried again, and which answers still count.

const KEY = "truelike.key";
const TIMEOUT = 20_000; // milliseconds
const MOST_BUSY = 4; // times that a busy server is asked again
const BACKOFF = [500, 1_000, 2_000, 4_000, 8_000]; // milliseconds

/** An error that the server answered. */
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The server did not answer. */
export class OfflineError extends Error {}

/** Events: `offline`, `online`, `busy`, `free`, and `key` with a message where the key is wrong. */
export const connection = new EventTarget();
const tell = (name, detail) => connection.dispatchEvent(new CustomEvent(name, { detail }));

let storedKey = null; // where storage is blocked
export function apiKey() {
  try {
    return sessionStorage.getItem(KEY) ?? storedKey;
  } catch {
    return storedKey;
  }
}
export function useKey(key) {
  storedKey = key;
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // kept for this page alone
  }
}

const running = new Map();
/** A signal for a request in place of an earlier one of the same name, which is aborted. */
export function latest(name) {
  running.get(name)?.abort();
  const controller = new AbortController();
  running.set(name, controller);
  return controller.signal;
}

export const isAborted = (error) => error.name === "AbortError";

const pause = (milliseconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });

/** Ask the server. GET with `query`, POST with `body`. Unset parameters are left out. */
export async function ask(path, { query, body, signal } = {}) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== null && value !== undefined);
  const address = given.length ? `${path}?${new URLSearchParams(given)}` : path;
  for (let tries = 0; ; tries += 1) {
    const response = await send(address, body, signal);
    const answer = await response.json().catch((error) => {
      if (isAborted(error)) throw error;
      return null; // cut off, or no JSON
    });
    if (tries && response.status !== 503) tell("free");
    if (response.ok && answer !== null) return answer;
    if (answer === null) {
      if (response.ok || [502, 503, 504].includes(response.status)) throw offline(); // a proxy, without a server
      throw new ApiError(response.status, "http", `the server answered with status ${response.status}`);
    }
    const error = new ApiError(response.status, answer.error?.code ?? "http", answer.error?.message ?? "");
    if (error.status === 503 && tries < MOST_BUSY) {
      tell("busy");
      await pause(1_000 * Number(response.headers.get("retry-after") ?? 1), signal);
      continue;
    }
    if (error.status === 503) tell("free"); // the error is shown instead
    if (error.status === 401) tell("key", error.code === "key_wrong" ? error.message : "");
    throw error;
  }
}

async function send(address, body, signal) {
  const headers = {};
  if (apiKey() !== null) headers.authorization = `Bearer ${apiKey()}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const timeout = AbortSignal.timeout(TIMEOUT);
  try {
    return await fetch(address, {
      method: body === undefined ? "GET" : "POST",
      body: body === undefined ? undefined : JSON.stringify(body),
      headers,
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    });
  } catch (error) {
    if (isAborted(error)) throw error;
    throw offline();
  }
}

// --- the server goes away and comes back ----------------------------------------------------------

let waiting = false;
let hurry = () => {};

function offline() {
  if (!waiting) {
    waiting = true;
    waitForServer();
  }
  return new OfflineError("the server does not answer");
}

async function waitForServer() {
  for (let tries = 0; ; tries += 1) {
    const delay = BACKOFF[Math.min(tries, BACKOFF.length - 1)];
    tell("offline");
    await Promise.race([
      pause(delay),
      new Promise((resolve) => {
        hurry = resolve;
      }),
    ]);
    try {
      const response = await fetch("/readyz", { signal: AbortSignal.timeout(TIMEOUT) });
      if (response.ok) break;
    } catch {
      // not yet
    }
  }
  waiting = false;
  tell("online");
}

/** Look for the server now. */
export const tryNow = () => hurry();
