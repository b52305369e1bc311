// Talks to the server: data, and actions with the token that the user has typed.

const TOKEN = "sunshower-token";

/** An answer that is no success; `status` 0: the server does not answer. */
export class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function answer(path, options) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "TimeoutError") throw new Refusal("The topology does not answer.", 0);
    throw new Refusal("The server does not answer: the command has ended, or is cut off.", 0);
  }
  let body;
  try {
    body = await response.json();
  } catch {
    throw new Refusal(`The server answered ${response.status}.`, response.status);
  }
  if (!response.ok) throw new Refusal(body.error ?? `error ${response.status}`, response.status);
  return body;
}

const query = (parameters) => new URLSearchParams(parameters).toString();

export const topologies = () => answer("/api/topologies");
/** `window`: a window of time, or null. */
export const topology = (name, window) =>
  answer(`/api/topology?${query({ name, ...(window && { window }) })}`);
export const component = (name, id) =>
  answer(`/api/component?${query({ name, component: id })}`);

const TREES_WITHIN_MS = 20_000; // workers have five seconds to answer
const soon = () => ({ signal: AbortSignal.timeout(TREES_WITHIN_MS) });

/** Lists of recorded tuple trees, and one of them: only on demand, all workers are asked. */
export const traces = (name) => answer(`/api/traces?${query({ name })}`, soon());
export const trace = (name, root) => answer(`/api/trace?${query({ name, root })}`, soon());

export const experiments = () => answer("/api/experiments");
export const experiment = (run) => answer(`/api/experiment?${query({ run })}`);
export const chartUrl = (run, name) => `/api/experiment/chart?${query({ run, name })}`;
export const reportUrl = (run) => `/api/experiment/report?${query({ run })}`;

/** Dead letters, one of them, and how far a replay is: files and topics are read. */
export const letters = (name, chosen) => answer(`/api/letters?${query({ name, ...chosen })}`, soon());
export const letter = (name, id) => answer(`/api/letter?${query({ name, letter: id })}`, soon());
export const replayProgress = (name) => answer(`/api/replay?${query({ name })}`);

/** The lines of the log with a number above `after`; of a component, or ("") of all. */
export const logs = (name, component, after) => answer(`/api/logs?${query({ name, component, after })}`, soon());

/** The user's code of a component, and values of its state: of a key, or ("") of some keys. */
export const code = (name, component) => answer(`/api/code?${query({ name, component })}`, soon());
export const state = (name, component, key) =>
  answer(`/api/state?${query({ name, component, key })}`, soon());

/** What an action will do, as sentences. */
export const consequences = (name, action, workers) =>
  answer(`/api/consequences?${query({ name, action, ...(workers && { workers }) })}`);

/** Records a profile, and then where the time went in it, and its flame graph. */
export const profile = (name, component) => post("/api/profile", { name, component });
export const profiled = (name) => answer(`/api/profile?${query({ name })}`);
export const graphUrl = (name, atS) => `/api/profile/graph?${query({ name, at: atS })}`;

/** The token of this browser tab, or "". */
export const token = () => sessionStorage.getItem(TOKEN) ?? "";
export const keepToken = (text) => sessionStorage.setItem(TOKEN, text);
export const forgetToken = () => sessionStorage.removeItem(TOKEN);

/** Do something to a topology; returns a sentence. Throws a Refusal with status 401 for a token. */
export const act = (name, action, workers = null) => post("/api/action", { name, action, workers });

/** Replay the dead letters that satisfy conditions, or one: {letter: id}; otherwise as `act`. */
export const replay = (name, chosen) => post("/api/replay", { name, letters: chosen });

async function post(path, body) {
  const reply = await answer(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Sunshower-Token": token() },
    body: JSON.stringify(body),
  });
  return reply.said;
}
