// The section with recorded tuple trees: lists, which are loaded when it is opened, and one tree.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import * as api from "./api.js";
import { clock, count, duration, plural } from "./format.js";
import { State, useLoaded } from "./loading.js";
import { linkTo, linkToTree } from "./route.js";
import { TreeView, why } from "./tree.js";

const KINDS = ["failed", "slowest", "latest"];
const BEAT_MS = 1_000;
const STYLES = { complete: "good", failed: "bad" };

export function Trees({ name, root, href }) {
  const [isOpen, setIsOpen] = useState(root != null);
  const [round, setRound] = useState(0); // grows with each refresh
  const [kind, setKind] = useState(null); // null: failed ones if there are any, else the latest
  const isShown = isOpen || root != null;
  const lists = useLoaded(isShown, () => api.traces(name), [name, round]);
  const [beat, setBeat] = useState(0); // grows each second while the chosen tree is open
  const tree = useLoaded(root != null, () => api.trace(name, root), [name, root, `${round} ${beat}`]);
  useEffect(() => {
    if (tree.data?.trees[0].outcome !== "open") return undefined;
    const timer = setTimeout(() => setBeat(beat + 1), BEAT_MS);
    return () => clearTimeout(timer);
  }, [tree.data]);
  const shown = kind ?? (lists.data?.counts.failed ? "failed" : "latest");
  const close = () => {
    setIsOpen(false);
    if (root != null) location.hash = linkTo(name);
  };
  return html`<section class="card trees" aria-labelledby="trees-title">
    <div class="panel-top"><h2 id="trees-title">Tuple trees</h2><span class="inline">
      ${isShown && html`<button type="button" onClick=${() => setRound(round + 1)}>Refresh<span
        class="unseen"> the tuple trees</span></button>`}
      <button type="button" aria-expanded=${isShown} onClick=${isShown ? close
        : () => setIsOpen(true)}>${isShown ? "Hide" : "Show"}<span class="unseen"> tuple
        trees</span></button></span></div>
    ${!isShown && html`<p class="quiet">What happened to single tuples: recorded trees, with the
      tasks they went through. They are loaded when this is opened.</p>`}
    ${isShown && html`<${State} loaded=${lists} text="Loading the trees …" />`}
    ${isShown && lists.data && html`<${Lists} name=${name} lists=${lists.data} shown=${shown}
      choose=${setKind} root=${root} />`}
    ${root != null && html`<${State} loaded=${tree} text="Loading the tree …" />`}
    ${tree.data && html`<${TreeView} key=${root} tree=${tree.data.trees[0]} name=${name}
      href=${href} />`}
  </section>`;
}

function Lists({ name, lists, shown, choose, root }) {
  const trees = lists.lists[shown];
  const all = lists.counts[shown];
  return html`
    ${lists.missing.map((text) => html`<p class="notice bad" key=${text}>${text}</p>`)}
    <div class="inline kinds" role="group" aria-label="Which trees">${KINDS.map((kind) => html`<button
      type="button" key=${kind} aria-pressed=${kind === shown} onClick=${() => choose(kind)}>${kind}
      ${kind === "slowest" ? "" : html`${" "}<span class="quiet">${count(lists.counts[kind])}</span>`}
      </button>`)}</div>
    ${!trees.length && html`<p>${lists.none[shown]}</p>`}
    ${trees.length > 0 && html`<div class="scroll list" tabindex="0" role="region"
      aria-label="Recorded tuple trees"><table class="rows">
      <caption class="unseen">Recorded tuple trees: ${shown}</caption>
      <thead><tr>${["message", "outcome", "cause", "took", "emitted", "attempt", "edges", "spout"].map(
        (title) => html`<th scope="col" class=${isNumber(title) ? "number" : ""}>${title}</th>`)}</tr></thead>
      <tbody>${trees.map((tree) => html`<tr key=${tree.root} class=${tree.root === root ? "chosen" : ""}>
        <th scope="row"><a href=${linkToTree(name, tree.root)} id=${`tree-${tree.root}`}
          aria-current=${tree.root === root ? "true" : null}>${tree.message_id || tree.root}</a></th>
        <td><span class=${`badge ${STYLES[tree.outcome] ?? "warn"}`}>${tree.outcome}</span></td>
        <td><div class="short" title=${why(tree)}>${why(tree)}</div></td>
        <td class="number">${duration(tree.latency_s)}</td>
        <td class="number">${clock(tree.emitted_s)}</td>
        <td class=${`number ${tree.attempt > 1 ? "warn" : ""}`}>${count(tree.attempt)}</td>
        <td class="number">${count(tree.edges)}</td><td>${tree.spout}</td></tr>`)}</tbody></table></div>`}
    ${all > trees.length && html`<p class="quiet more">${plural(trees.length, "tree")} of
      ${" "}${count(all)}</p>`}`;
}

const isNumber = (title) => ["took", "emitted", "attempt", "edges"].includes(title);
