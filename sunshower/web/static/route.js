// The part of the address behind "#": the topology, component and tuple tree that the page shows.

const NOWHERE = { name: null, component: null, root: null, runs: null };

/** "#/t/words/c/split" → {name: "words", component: "split", root: null}; a root: "#/t/words/r/…".
 * "#/e": the list of experiments; "#/e/RUN" is a run and "#/e/RUN/RUN" a comparison: `runs`. */
export function route() {
  const [, t, name, kind, id] = location.hash.split("/");
  try {
    if (t === "e") {
      return { ...NOWHERE, runs: [name, kind].filter(Boolean).map(decodeURIComponent) };
    }
    return {
      runs: null,
      name: t === "t" && name ? decodeURIComponent(name) : null,
      component: kind === "c" && id ? decodeURIComponent(id) : null,
      root: kind === "r" && id ? decodeURIComponent(id) : null,
    };
  } catch {
    return NOWHERE;
  }
}

export const linkTo = (name, component = null) =>
  `#/t/${encodeURIComponent(name)}` + (component ? `/c/${encodeURIComponent(component)}` : "");

export const linkToTree = (name, root) => `${linkTo(name)}/r/${encodeURIComponent(root)}`;

export const linkToRuns = (...runs) => ["#/e", ...runs.map(encodeURIComponent)].join("/");
