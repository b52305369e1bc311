// Loads the data of an address. Requests the first data before the other modules run.

import * as api from "./api.js";
import { route } from "./route.js";

const ask = ({ name, component }, window) => Promise.all([
  name ? api.topology(name, window) : api.topologies(),
  name && component ? api.component(name, component).catch((error) => ({ error })) : null,
]);

const isParsed = new Promise((done) => {
  if (document.readyState === "complete") done();
  else addEventListener("DOMContentLoaded", done); // then the library of the charts has run
});

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
  const isEarly = early?.hash === location.hash && !window;
  const answers = isEarly ? early.answers : ask(where, window);
  return Promise.all([answers, isParsed]).then(([facts]) => facts);
}
