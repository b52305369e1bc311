// The panel of one component: latencies, counters, waits, errors, figures and tasks.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { count, duration, elapsed, figure, plural, rate, share, timeOfDay, plain } from "./format.js";
import { level } from "./graph.js";
import { Inside } from "./inside.js";
import { figureTable, WAITS } from "./model.js";
import { Streams } from "./streams.js";
import { Example, keyOf } from "./tables.js";
import { WindowsTable } from "./windows.js";
import { TimeSplit } from "./time_split.js";

const TASKS_SHOWN = 24;
const COUNTERS = [
  "emitted", "transferred", "executed", "acked", "failed", "replayed", "expired", "late", "ahead",
  "dead", "pending", "queued", "errors", "state_entries",
];
const NAMES = {
  dead: "dead letters", state_entries: "entries of its state", late: "late records",
  ahead: "records ahead of the clock",
};

export function ComponentPanel({ node, facts, derived, detail, close, href }) {
  const heading = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    heading.current.focus({ preventScroll: innerWidth >= 1000 });
    const leave = (event) => {
      if (event.key === "Escape") location.hash = close;
    };
    addEventListener("keydown", leave);
    return () => {
      removeEventListener("keydown", leave);
      before?.focus?.({ preventScroll: true });
    };
  }, []);
  const details = node.facts;
  return html`<aside class="card panel" aria-labelledby="component-title">
    <div class="panel-top"><h2 id="component-title" tabindex="-1" ref=${heading}>${node.id}</h2>
      <a class="button" href=${close}>Close<span class="unseen"> the component ${node.id}</span></a></div>
    <p class="quiet">${details.level} · ${plural(details.parallelism, "task")}
      ${details.window && html` · rates, latencies and counters of ${elapsed(details.window.for_s)}`}
      ${node.isBottleneck && html` <span class="badge warn">bottleneck</span>`}
      ${node.state && html` <span class=${`badge ${node.state.kind}`}>${node.state.text}</span>`}</p>
    ${details.awaits.length > 0 && html`<p class="notice wait">waits until the tables of its joins have
      the records of ${details.awaits.join(", ")}</p>`}
    ${[...details.watermark_holds.map((why) => `windows wait: ${why}`), ...details.event_time_notes]
      .map((note) => html`<p class="notice wait" key=${note}>${note}</p>`)}
    <${Waits} waits=${node.waits} />
    <${Calls} calls=${node.stuck} />
    <${Why} failures=${facts.failures.filter((failure) =>
      failure.component === node.id || (node.isSpout && failure.component == null))} />
    <${Flow} node=${node} derived=${derived} href=${href} />
    <${TimeSplit} node=${node} />
    <${Inside} name=${facts.topology} node=${node} canAct=${facts.actions.length > 0} />
    <${Latency} latencies=${details.latencies} />
    <${Streams} facts=${details} />
    <h3>Counters</h3>
    <dl class="facts">${COUNTERS.filter((name) => details[name] || ["emitted", "failed"].includes(name))
      .map((name) => html`<div class=${["failed", "dead", "late", "ahead", "errors"].includes(name) && details[name]
        ? "bad" : ""}><dt>${NAMES[name] ?? name}</dt><dd>${count(details[name])}</dd></div>`)}</dl>
    <${Figures} figures=${details.figures} />
    ${detail == null ? html`<p class="quiet">Loading its tasks …</p>`
      : detail.error ? html`<p class="notice bad">${detail.error.message}</p>`
      : html`<${Errors} errors=${detail.errors} />
          <${WindowsTable} windows=${detail.windows} isSpout=${node.isSpout} tracked=${facts.tracked} />
          <${Tasks} tasks=${detail.tasks} isSpout=${node.isSpout} />`}
  </aside>`;
}

function Waits({ waits }) {
  return waits.slice(0, 5).map((wait) => html`<div class="notice wait" key=${wait.task}>
    <strong>Task ${wait.task} ${WAITS[wait.kind] ?? WAITS.unavailable} for ${
      elapsed(wait.for_s)}</strong>
    <p>${wait.error}</p><p class="quiet">${count(wait.tries)} tries${
      wait.reached ? "" : "; it was never reached"}</p></div>`);
}

function Calls({ calls }) {
  return calls.map((call) => html`<div class="notice bad" key=${call.index}>
    <strong>Task ${call.index} has been in one call for ${elapsed(call.for_s)}</strong>
    <p><code>${call.where}</code></p></div>`);
}

const Capacity = ({ title, of }) => html`<div><dt>${title}</dt><dd>${share(of)}
  <span class=${`meter ${level(of)}`}><i style=${{ width: `${of * 100}%` }}></i></span></dd></div>`;

function Flow({ node, derived, href }) {
  const facts = node.facts;
  const side = (edges, end) => edges.map((edge) => html`<li><a href=${href(edge[end])}>${edge[end]}</a>
    ${" "}<span class="quiet">${edge.stream === "default" ? "" : `${edge.stream} · `}${edge.grouping}
    ${edge.rate == null ? "" : ` · ${rate(edge.rate)}/s`}</span></li>`);
  const reads = derived.edges.filter((edge) => edge.target === node.id);
  const sends = derived.edges.filter((edge) => edge.source === node.id);
  return html`
    <dl class="facts"><div><dt>${node.isSpout ? "done" : "executed"} a second</dt><dd>${rate(node.rate)}</dd></div>
      <${Capacity} title="capacity" of=${node.capacity} />
      ${node.busiest != null && html`<${Capacity} title="busiest task" of=${node.busiest} />`}
      ${facts.watermark_lag != null && html`<div><dt>watermark lag${
        facts.event_time_per_s ? "" : ", in the unit of the field"}</dt><dd>${facts.event_time_per_s
        ? duration(facts.watermark_lag / facts.event_time_per_s) : figure(facts.watermark_lag)}</dd></div>`}
      ${facts.late > 0 && html`<div><dt>the worst late record came</dt><dd>${
        figure(facts.late_by)} after its window had ended</dd></div>`}
      ${!node.isSpout && html`<div><dt>waits in the inbox</dt><dd>${node.facts.queue_s < 100
        ? duration(node.facts.queue_s) : elapsed(node.facts.queue_s)}</dd></div>`}
    </dl>
    ${reads.length > 0 && html`<h3>Reads</h3><ul class="plain">${side(reads, "source")}</ul>`}
    ${sends.length > 0 && html`<h3>Is read by</h3><ul class="plain">${side(sends, "target")}</ul>`}`;
}

function Latency({ latencies }) {
  const kinds = Object.entries(latencies);
  if (!kinds.length) return null;
  const names = ["p50", "p90", "p99", "max"];
  return html`<h3>Latency</h3><div class="scroll" tabindex="0" role="region" aria-label="Latency">
    <table class="rows"><caption class="unseen">Latencies of the chosen time</caption>
    <thead><tr><td></td>${names.map((name) =>
      html`<th scope="col" class="number">${name}</th>`)}</tr></thead>
    <tbody>${kinds.map(([kind, percentiles]) => html`<tr key=${kind}><th scope="row">${kind}</th>
      ${names.map((name) => html`<td class="number">${duration(percentiles[`${name}_s`])}</td>`)}</tr>`)}
    </tbody></table></div>`;
}

function Why({ failures }) {
  if (!failures.length) return null;
  return html`<h3>Why trees failed</h3>${failures.map((group) => html`
    <details class="error" key=${keyOf(group)}>
      <summary><b>${group.cause}</b>${group.message && `: ${group.message}`} · ${
        count(group.count)} times, the last at ${timeOfDay(group.last_s)}</summary>
      <${Example} group=${group} /></details>`)}`;
}

function Figures({ figures }) {
  const { single, rows, columns } = figureTable(figures);
  return html`
    ${single.length > 0 && html`<h3>Figures</h3><dl class="facts">${single.map(([name, value]) =>
      html`<div><dt>${name}</dt><dd>${figure(value)}</dd></div>`)}</dl>`}
    ${rows.length > 0 && html`<h3>Parts</h3><div class="scroll" tabindex="0" role="region"
      aria-label="Figures of parts"><table class="rows"><caption class="unseen">Figures of each part,
      such as a partition of Kafka</caption><thead><tr><th scope="col">part</th>
      ${columns.map((name) => html`<th scope="col" class="number">${name}</th>`)}</tr></thead>
      <tbody>${rows.slice(0, 100).map(([part, row]) => html`<tr key=${part}><th scope="row">${part}</th>
        ${columns.map((name) => html`<td class="number">${name in row ? figure(row[name]) : ""}</td>`)}
      </tr>`)}</tbody></table></div>`}`;
}

function Errors({ errors }) {
  if (!errors.length) return null;
  return html`<h3>Last errors</h3>${errors.map((entry, n) => html`
    <details class="error" key=${`${entry.task} ${entry.error}`} open=${n === 0}>
      <summary>Task ${entry.task}, worker ${entry.worker}: ${entry.error}</summary>
      ${entry.traceback && html`<pre tabindex="0">${plain(entry.traceback)}</pre>`}</details>`)}`;
}

function Tasks({ tasks, isSpout }) {
  const [isOpen, setIsOpen] = useState(false);
  const shown = isOpen ? tasks : tasks.slice(0, TASKS_SHOWN);
  const counters = isSpout ? ["emitted", "acked", "failed", "pending"] : ["executed", "failed",
    "queued", ...(tasks.some((task) => task.state_entries != null) ? ["state_entries"] : [])];
  const state = (task) => task.quarantined ? ["bad", "quarantined"] : task.waits ? ["wait", "waits"]
    : task.standing == null ? ["still", "no report yet"] : task.standing === "running" ? null
    : ["warn", task.standing];
  return html`<h3>Tasks</h3><div class="scroll" tabindex="0" role="region" aria-label="Tasks">
    <table class="rows"><caption class="unseen">The tasks of this component</caption>
      <thead><tr><th scope="col">task</th><th scope="col" class="number">worker</th>
        ${counters.map((name) => html`<th scope="col" class="number">${
          name === "state_entries" ? "entries" : name}</th>`)}
        <th scope="col" class="number">p99</th><th scope="col">state</th></tr></thead>
      <tbody>${shown.map((task) => html`<tr key=${task.task}><th scope="row">${task.task}</th>
        <td class="number">${task.worker}</td>
        ${counters.map((name) => html`<td class=${`number ${name === "failed" && task.failed ? "bad" : ""}`}>
          ${count(task[name])}</td>`)}
        <td class="number">${duration(
          task.latencies?.[isSpout ? "complete" : "execute"]?.p99_s)}</td>
        <td>${state(task) && html`<span class=${`badge ${state(task)[0]}`}>${state(task)[1]}</span>`}</td></tr>`)}
      </tbody></table></div>
    ${tasks.length > shown.length && html`<p><button type="button" onClick=${() => setIsOpen(true)}>
      Show all ${count(tasks.length)} tasks</button></p>`}`;
}
