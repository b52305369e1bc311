// Loads the data of an address. Requests the first data before the other modules run.

import * as api from "./api.js";
import { route } from "./route.js";

const ask = ({ name, component }, window) => Promise.all([
  name ? api.topology(name, window) : api.topologies(),
  name && component ? api.component(name, component).catch((error) => ({ error })) : null,
]);

let first = null; // {hash, answers}, until the first `load`
const opened = route();
if (!opened.runs && !document.hidden) {
  first = { hash: location.hash, answers: ask(opened, null) };
  first.answers.catch(() => {}); // `load` returns the same error
}

/** [facts of a topology, or the list of topologies; facts of its component, or null]. `where`: the
 * `route` of the address; `window`: a window of time, or null. */
export function load(where, window) {
  const early = first;
  first = null;
  return early?.hash === location.hash && !window ? early.answers : ask(where, window);
}
