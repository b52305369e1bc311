// Loads what a section shows when it is opened, and says while it loads, or why it cannot.

import { html, useEffect, useState } from "./vendor/preact-htm.js";

/** What `load` returns, or its error; loaded again when `keys` change. Meanwhile `data` stays if
 * all keys but the last, the round, are the same. */
export function useLoaded(isWanted, load, keys) {
  const [state, setState] = useState({});
  const subject = JSON.stringify(keys.slice(0, -1));
  useEffect(() => {
    if (!isWanted) return undefined;
    let isOver = false;
    setState((old) => ({ subject, data: old.subject === subject ? old.data : null, isBusy: true }));
    load().then((data) => isOver || setState({ subject, data }),
      (error) => isOver || setState({ subject, error }));
    return () => { isOver = true; };
  }, [isWanted, ...keys]);
  return isWanted && state.subject === subject ? state : { isBusy: isWanted };
}

export function State({ loaded, text }) {
  return html`<p class=${loaded.error ? "notice bad" : "quiet"} role=${loaded.error ? "alert"
    : "status"}>${loaded.error ? loaded.error.message : loaded.isBusy && !loaded.data ? text : ""}</p>`;
}
