// Tables of a topology: failures by cause and place, batches, components, workers.

import { html, useState } from "./vendor/preact-htm.js";
import { count, duration, elapsed, rate, share } from "./format.js";

/** A card with a table: `columns` are names, or ""; one that ends in "#" is of right-aligned numbers. */
export function Table({ title, caption, columns, children, note = null }) {
  const id = `table-${title.toLowerCase().replace(/\W+/g, "-")}`;
  return html`<section class="card" aria-labelledby=${id}><h2 id=${id}>${title}</h2>${note}
    <div class="scroll" tabindex="0" role="region" aria-label=${`Table: ${title}`}><table class="rows">
      <caption class="unseen">${caption}</caption>
      <thead><tr>${columns.map((name) => (name ? html`<th scope="col"
        class=${name.endsWith("#") ? "number" : ""}>${name.replace("#", "")}</th>` : html`<td></td>`))}</tr></thead>
      <tbody>${children}</tbody></table></div></section>`;
}

export function Failures({ facts, derived, href }) {
  const places = new Map(); // over the tasks of a component
  for (const node of derived.nodes) {
    for (const one of node.facts.failures) {
      const key = JSON.stringify([node.id, one.cause, one.component]);
      const known = places.get(key) ?? { ...one, spout: node.id, count: 0 };
      places.set(key, { ...known, count: known.count + one.count });
    }
  }
  if (!places.size) return null;
  const newest = (place) => facts.failures.find((one) =>
    one.spout === place.spout && one.cause === place.cause && one.component === place.component);
  return html`<${Table} title="Failures" caption="Failed trees by cause and by the place where they
    failed" columns=${["cause", "failed in", "trees#", "spout", "the newest"]}>${[...places]
      .sort(([, a], [, b]) => b.count - a.count).map(([key, place]) => html`<tr key=${key}>
        <th scope="row">${place.cause}</th>
        <td>${place.component ? html`<a href=${href(place.component)}>${place.component}</a>`
          : html`<span class="quiet">unknown</span>`}</td>
        <td class="number bad">${count(place.count)}</td>
        <td><a href=${href(place.spout)}>${place.spout}</a></td>
        <td class="text">${newest(place) && html`<${Reason} place=${newest(place)} />`}</td></tr>`)}<//>`;
}

function Reason({ place }) {
  if (!place.traceback) return place.reason;
  return html`<details><summary>${place.reason || "traceback"}</summary>
    <pre tabindex="0">${place.traceback}</pre></details>`;
}

export function Batches({ batches }) {
  if (!batches.length) return null;
  return batches.map((group) => html`<${Table} key=${group.group} title=${`Batches of ${group.group}`}
    caption="Open batches" columns=${["batch", "phase", "attempt#", "age#"]}
    note=${html`<p class="quiet">${count(group.committed)} committed, ${count(group.skipped)}
      ${" "}skipped, ${count(group.attempts_failed)} failed attempts</p>`}>${group.open.map((one) => html`
      <tr key=${one.txid}><th scope="row">${one.txid}</th><td>${one.phase}</td>
        <td class=${`number ${one.attempt > 1 ? "warn" : ""}`}>${one.attempt}</td>
        <td class="number">${elapsed(one.age_s)}</td></tr>`)}<//>`);
}

export function Components({ derived, href, tracked }) {
  const sources = (id) => derived.edges.filter((edge) => edge.target === id)
    .map((edge) => `${edge.source}${edge.stream === "default" ? "" : `.${edge.stream}`}` +
      ` (${edge.grouping})`).join(", ");
  return html`<${Table} title="Components" caption="The components of the graph, with their counters"
    columns=${["component", "reads", "tasks#", "a second#", "capacity#", "queued#", "emitted#", "acked#",
      "failed#", "p99#", "state"]}>${derived.nodes.map((node) => html`<tr key=${node.id}>
      <th scope="row"><a href=${href(node.id)}>${node.id}</a></th>
      <td class="text quiet">${sources(node.id) || (node.isSpout ? "source" : "")}</td>
      <td class="number">${count(node.facts.parallelism)}</td>
      <td class="number">${rate(node.rate)}</td><td class="number">${share(node.capacity)}</td>
      <td class="number">${node.isSpout ? "" : count(node.facts.queued)}</td>
      <td class="number">${count(node.facts.emitted)}</td>
      <td class="number">${tracked ? count(node.facts.acked) : ""}</td>
      <td class=${`number ${node.facts.failed ? "bad" : ""}`}>${count(node.facts.failed)}</td>
      <td class="number">${node.facts.p99_s == null ? "" : duration(node.facts.p99_s)}</td>
      <td>${node.state ? html`<span class=${`badge ${node.state.kind}`}>${node.state.text}</span>`
        : node.isBottleneck ? html`<span class="badge warn">bottleneck</span>` : ""}</td></tr>`)}<//>`;
}

const WORKERS_SHOWN = 20;

export function Workers({ workers, silent }) {
  const [isOpen, setIsOpen] = useState(false);
  const shown = isOpen ? workers : workers.slice(0, WORKERS_SHOWN);
  return html`<${Table} title="Workers" caption="The processes of this topology"
    columns=${["worker", "node", "process#", "life#", "tasks#", "state"]}>${shown.map((one) => html`
      <tr key=${one.worker}><th scope="row">${one.worker}</th>
        <td class="code">${(one.node ?? "").slice(0, 8)}</td><td class="number">${one.process ?? "–"}</td>
        <td class=${`number ${one.life > 1 ? "warn" : ""}`}>${one.life ?? "–"}</td>
        <td class="number">${count(one.tasks)}</td>
        <td>${silent[one.worker] == null ? "" : html`<span class="badge wait">silent
          ${" "}${elapsed(silent[one.worker])}</span>`}
          ${one.crash_reports && html`<span class="badge warn" title=${one.crash_reports}>no crash
            reports</span>`}</td></tr>`)}
    ${workers.length > shown.length && html`<tr><td colspan="6"><button type="button"
      onClick=${() => setIsOpen(true)}>Show all ${count(workers.length)} workers</button></td></tr>`}<//>`;
}
