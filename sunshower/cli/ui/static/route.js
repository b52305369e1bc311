// The part of the address behind "#": the topology, and which part of it the page shows.

const NOWHERE = { name: null, component: null, root: null, letter: null, runs: null };

/** "#/t/words/c/split" → {name: "words", component: "split", …: null}; also "r": a tuple tree, "d": a
 * dead letter, or without an id the list of them (""). "#/e": the list of experiments; "#/e/RUN" is a run, "#/e/RUN/RUN" a comparison: `runs`. */
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
      letter: kind === "d" ? decodeURIComponent(id ?? "") : null,
    };
  } catch {
    return NOWHERE;
  }
}

export const linkTo = (name, component = null) =>
  `#/t/${encodeURIComponent(name)}` + (component ? `/c/${encodeURIComponent(component)}` : "");

export const linkToTree = (name, root) => `${linkTo(name)}/r/${encodeURIComponent(root)}`;

export const linkToRuns = (...runs) => ["#/e", ...runs.map(encodeURIComponent)].join("/");

/** Without `letter`: the list of them. */
export const linkToLetter = (name, letter = "") =>
  `${linkTo(name)}/d${letter && `/${encodeURIComponent(letter)}`}`;
