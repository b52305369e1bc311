// The part of the address behind "#": the topology, component and tuple tree that the page shows.

/** "#/t/words/c/split" → {name: "words", component: "split", root: null}; a root: "#/t/words/r/…". */
export function route() {
  const [, t, name, kind, id] = location.hash.split("/");
  try {
    return {
      name: t === "t" && name ? decodeURIComponent(name) : null,
      component: kind === "c" && id ? decodeURIComponent(id) : null,
      root: kind === "r" && id ? decodeURIComponent(id) : null,
    };
  } catch {
    return { name: null, component: null, root: null };
  }
}

export const linkTo = (name, component = null) =>
  `#/t/${encodeURIComponent(name)}` + (component ? `/c/${encodeURIComponent(component)}` : "");

export const linkToTree = (name, root) => `${linkTo(name)}/r/${encodeURIComponent(root)}`;
