// Tables of a topology: failures by cause and place, batches, components, workers.

import { html, useState } from "./vendor/preact-htm.js";
import { count, duration, elapsed, rate, share, timeOfDay, plain } from "./format.js";
import { linkToLetter } from "./route.js";

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

export const keyOf = (group) => JSON.stringify([group.component, group.cause, group.exception, group.message]);

/** Groups of failures that differ only in their records. */
export function Failures({ name, groups, hasLetters, href }) {
  if (!groups.length) return null;
  return html`<${Table} title="Failures" caption="Failures, grouped by component and message"
    columns=${["what", "failed in", "times#", "a second#", "first", "last", "record"]}>${groups.map((group) =>
      html`<tr key=${keyOf(group)}><th scope="row" class="text"><details><summary>${group.message || group.cause}
          ${" "}<span class="quiet">${group.cause}</span></summary><${Example} group=${group} /></details></th>
        <td>${group.component ? html`<a href=${href(group.component)}>${group.component}</a>`
          : html`<span class="quiet">unknown</span>`}</td>
        <td class="number bad">${count(group.count)}</td>
        <td class="number">${group.rate < 0.05 ? html`<span class="quiet">not now</span>` : rate(group.rate)}</td>
        <td class="nowrap">${timeOfDay(group.first_s)}</td><td class="nowrap">${timeOfDay(group.last_s)}</td>
        <td class="text code">${group.example.record || group.example.message}${hasLetters && html` <a
          class="nowrap" href=${linkToLetter(name)}>dead letters</a>`}</td></tr>`)}<//>`;
}

/** The newest failure of a group. */
export function Example({ group: { example } }) {
  const place = [example.message && `message ${example.message}`, example.task != null && `task ${example.task}`,
    example.worker != null && `worker ${example.worker}`].filter(Boolean).join(" · ");
  return html`<p class="quiet">${place}</p>${example.record && html`<p><code>${example.record}</code></p>`}
    <p>${plain(example.reason)}</p>${example.traceback && html`<pre tabindex="0">${plain(example.traceback)}</pre>`}`;
}

export function Batches({ batches }) {
  return batches.map((group) => html`<${Table} key=${group.group} title=${`Batches of ${group.group}`}
    caption="The open batches, and the last that were committed, on one time axis"
    columns=${["batch", "state", "attempt#", "took#", ""]}
    note=${html`<p class="quiet">${count(group.committed)} committed, ${count(group.skipped)}
      ${" "}skipped, ${count(group.attempts_failed)} failed attempts · the bars cover the last
      ${" "}${duration(spanOf(group))}</p>
      <ul class="legend"><li><i class="key queue"></i>processing</li><li><i class="key execute"></i>
        commit</li></ul>`}>${[...group.open].reverse().map((batch) => html`
      <tr key=${batch.txid}><th scope="row">${batch.txid}</th><td>${batch.phase}</td>
        <td class=${`number ${batch.attempt > 1 ? "warn" : ""}`}>${batch.attempt}</td>
        <td class="number">${duration(batch.age_s)}</td>
        <td class="axis">${bar(group, batch.age_s, [["queue", batch.age_s]])}</td></tr>`)}
      ${[...group.recent].reverse().map((batch) => html`<tr key=${batch.txid}><th scope="row">${batch.txid}</th>
        <td class="quiet">committed</td><td></td><td class="number">${duration(batch.process_s + batch.commit_s)}</td>
        <td class="axis">${bar(group, batch.age_s,
          [["queue", batch.process_s], ["execute", batch.commit_s]])}</td></tr>`)}<//>`);
}

/** From the begin of the oldest shown batch until now, in seconds. */
const spanOf = (group) => Math.max(1e-3, ...[...group.open, ...group.recent].map((batch) => batch.age_s));

function bar(group, ageS, parts) {
  const span = spanOf(group);
  let at = span - ageS;
  return html`<div class="bar" aria-hidden="true">${parts.map(([kind, length]) => {
    const left = at;
    at += length;
    return html`<i class=${kind} style=${{ left: `${(100 * left) / span}%`, width: `${(100 * length) / span}%` }}></i>`;
  })}</div>`;
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
      <td class="number">${rate(node.rate)}</td><td class="number">${share(node.capacity)}${node.busiest != null && html`
        <span class="quiet line"> max ${share(node.busiest)}</span>`}</td>
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
    columns=${["worker", "node", "process#", "life#", "tasks#", "state"]}>${shown.map((worker) => html`
      <tr key=${worker.worker}><th scope="row">${worker.worker}</th>
        <td class="code">${(worker.node ?? "").slice(0, 8)}</td><td class="number">${worker.process ?? "–"}</td>
        <td class=${`number ${worker.life > 1 ? "warn" : ""}`}>${worker.life ?? "–"}</td>
        <td class="number">${count(worker.tasks)}</td>
        <td>${silent[worker.worker] == null ? "" : html`<span class="badge wait">silent
          ${" "}${elapsed(silent[worker.worker])}</span>`}
          ${worker.crash_reports && html`<span class="badge warn" title=${worker.crash_reports}>no crash
            reports</span>`}</td></tr>`)}
    ${workers.length > shown.length && html`<tr><td colspan="6"><button type="button"
      onClick=${() => setIsOpen(true)}>Show all ${count(workers.length)} workers</button></td></tr>`}<//>`;
}
