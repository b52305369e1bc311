// The part of the address behind "#": which topology and which component the page shows.

/** "#/t/words/c/split" → {name: "words", component: "split"}. */
export function route() {
  const [, t, name, c, component] = location.hash.split("/");
  try {
    return {
      name: t === "t" && name ? decodeURIComponent(name) : null,
      component: c === "c" && component ? decodeURIComponent(component) : null,
    };
  } catch {
    return { name: null, component: null };
  }
}

export const linkTo = (name, component = null) =>
  `#/t/${encodeURIComponent(name)}` + (component ? `/c/${encodeURIComponent(component)}` : "");
