// The part of the address behind "#": the topology, and which part of it the page shows.

/** "#/t/words/c/split" → {name: "words", component: "split", …: null}; also "r": a tuple tree, "d": a dead letter. */
export function route() {
  const [, t, name, kind, id] = location.hash.split("/");
  try {
    return {
      name: t === "t" && name ? decodeURIComponent(name) : null,
      component: kind === "c" && id ? decodeURIComponent(id) : null,
      root: kind === "r" && id ? decodeURIComponent(id) : null,
      letter: kind === "d" && id ? decodeURIComponent(id) : null,
    };
  } catch {
    return { name: null, component: null, root: null, letter: null };
  }
}

export const linkTo = (name, component = null) =>
  `#/t/${encodeURIComponent(name)}` + (component ? `/c/${encodeURIComponent(component)}` : "");

export const linkToTree = (name, root) => `${linkTo(name)}/r/${encodeURIComponent(root)}`;

export const linkToLetter = (name, letter) => `${linkTo(name)}/d/${encodeURIComponent(letter)}`;
