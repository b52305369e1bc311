// The list of topologies, with their health.

import { html } from "./vendor/preact-htm.js";
import { count, elapsed, rate } from "./format.js";
import { linkTo } from "./route.js";

export function TopologyList({ topologies }) {
  if (!topologies.length) {
    return html`<section class="empty"><h1>No topology is running</h1>
      <p>Start one: <code>sunshower submit FILE.py</code></p>
      <p class="quiet">It appears here by itself.</p></section>`;
  }
  return html`<section aria-labelledby="topologies"><h1 id="topologies">Topologies</h1>
    <div class="scroll" tabindex="0" role="region" aria-label="Table: Topologies"><table class="rows">
      <caption class="unseen">Topologies of this cluster</caption>
      <thead><tr><th scope="col">topology</th><th scope="col">state</th>
        ${["up", "a second", "records behind", "failed", "restarts", "workers", "tasks"].map((name) =>
          html`<th scope="col" class="number">${name}</th>`)}<th scope="col">what limits it</th></tr></thead>
      <tbody>${topologies.map((topology) => html`<tr key=${topology.topology}>
        <th scope="row" class="nowrap"><a href=${linkTo(topology.topology)}>${topology.topology}</a></th>
        <td><${State} state=${topology.state} marks=${topology.marks} /></td>
        ${topology.up_s == null
          ? html`<td colspan="8"></td>`
          : html`<td class="number">${elapsed(topology.up_s)}</td>
            <td class="number">${rate(topology.rate)}</td><td class="number">${count(topology.lag)}</td>
            <td class=${`number ${topology.failed ? "bad" : ""}`}>${count(topology.failed)}</td>
            <td class=${`number ${topology.restarts ? "warn" : ""}`}>${count(topology.restarts)}</td>
            ${["workers", "tasks"].map((name) => html`<td class="number">${count(topology[name])}</td>`)}
            <td class="text quiet">${topology.limit}</td>`}
      </tr>`)}</tbody></table></div></section>`;
}

const KINDS = {
  active: "good", finished: "done", inactive: "still", killed: "still", failed: "bad",
  "does not answer": "bad", "of another release": "bad",
};

/** The state of a topology as a coloured word; `marks` are further words. */
export function State({ state, marks = [] }) {
  const kind = marks?.length && state === "active" ? "warn" : KINDS[state] ?? "warn";
  return html`<span class=${`badge ${kind}`}>${state}</span>
    ${(marks ?? []).map((mark) =>
      html` <span class=${`badge ${mark === "waiting" ? "wait" : "bad"}`}>${mark}</span>`)}`;
}
