// One tuple tree, drawn: each edge below the input it was made from, with its times as a bar.

import { html, useEffect, useRef } from "./vendor/preact-htm.js";
import { clock, count, duration, plural } from "./format.js";
import { linkTo } from "./route.js";

const HOPS_SHOWN = 200;
const DEPTH_MAX = 6; // deeper edges are not indented further

export function TreeView({ tree, name, href }) {
  const heading = useRef(null);
  const leave = () => {
    location.hash = linkTo(name);
    document.getElementById(`tree-${tree.root}`)?.focus();
  };
  useEffect(() => {
    heading.current.focus();
    const listen = (event) => event.key === "Escape" && leave();
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
  const isFailed = tree.outcome === "failed";
  const kind = isFailed ? "bad" : tree.outcome === "complete" ? "good" : "warn";
  const hidden = Math.max(0, tree.hops.length - HOPS_SHOWN);
  return html`<div class="tree" role="group" aria-labelledby="tree-title">
    <div class="panel-top"><h3 id="tree-title" tabindex="-1" ref=${heading}>Tree of message
      ${" "}<code>${tree.message_id || "unknown"}</code> <span class=${`badge ${kind}`}>${
        tree.outcome}</span></h3>
      <button type="button" onClick=${leave}>Close<span class="unseen"> the tree</span></button></div>
    ${isFailed && html`<p class="notice bad">${why(tree)}</p>`}
    ${tree.outcome === "unknown" && html`<p class="notice">The worker of its spout has died, or
      recorded it too long ago.</p>`}
    <p class="quiet">root <code>${tree.root}</code> · attempt ${count(tree.attempt)} · emitted
      ${" "}${clock(tree.emitted_s)} · ${tree.latency_s == null ? "not ended"
        : `took ${duration(tree.latency_s)}`} · ${plural(tree.hops.length + tree.dropped, "edge")}</p>
    <ul class="legend"><li><i class="key queue"></i>waits in queues</li><li><i class="key execute"></i>
      is processed</li><li><i class="key refused"></i>failed</li></ul>
    <div class="bar time-axis" aria-hidden="true">${[0, 0.25, 0.5, 0.75, 1].map((part) => html`<span
      style=${{ left: `${100 * part}%` }}>${part ? duration(part * spanOf(tree).length) : "0"}</span>`)}</div>
    <div class="hop first"><b><${Task} task=${tree.spout} href=${href} /></b> ${place(tree.worker)}
      ${" "}emits</div>
    <${Hops} hops=${nested(tree.hops.slice(0, HOPS_SHOWN))} tree=${tree} span=${spanOf(tree)}
      href=${href} depth=${1} />
    <${Xor} tree=${tree} />
    ${hidden > 0 && html`<p class="quiet">… and ${plural(hidden, "more edge")}: see
      ${" "}<code>sunshower trace ${name} ${tree.root} --json</code></p>`}
    ${tree.dropped > 0 && html`<p class="quiet">… and ${plural(tree.dropped, "edge")} not
      recorded</p>`}
  </div>`;
}

/** Why a tree has failed: the cause, and the reason, which may begin with it. */
export const why = ({ cause, reason }) =>
  (reason.startsWith(cause ?? "") ? reason : "") || [cause, reason].filter(Boolean).join(": ");

/** The hops as a tree: [{hop, below}]. An edge whose parent is not there is at the top. */
function nested(hops) {
  const top = [];
  const known = new Map();
  for (const hop of hops) {
    const branch = { hop, below: [] };
    (known.get(hop.parent)?.below ?? top).push(branch);
    known.set(hop.edge, branch);
  }
  return top;
}

/** From the first to the last time of a tree, Unix time in seconds. */
function spanOf(tree) {
  const times = [tree.emitted_s, tree.ended_s, ...tree.hops.flatMap((hop) =>
    [hop.sent_s, hop.delivered_s, hop.acked_s, hop.refused_s])].filter((time) => time != null);
  const begin = Math.min(...times);
  return { begin, length: Math.max(1e-9, Math.max(...times) - begin) };
}

function Hops({ hops, tree, span, href, depth }) {
  if (!hops.length) return null;
  return html`<ul class=${`hops ${depth > DEPTH_MAX ? "flat" : ""}`}>${hops.map(({ hop, below }) => html`
    <li key=${hop.edge}><${Hop} hop=${hop} tree=${tree} span=${span} href=${href} />
      <${Hops} hops=${below} tree=${tree} span=${span} href=${href} depth=${depth + 1} /></li>`)}</ul>`;
}

function Hop({ hop, tree, span, href }) {
  const isRefused = hop.refused_s != null;
  return html`<div class=${`hop ${isRefused ? "failed" : ""}`}>
    <div class="what"><b><${Task} task=${hop.target} href=${href} /></b> ${place(hop.worker)}
      ${isRefused && html` <span class="badge bad">failed: ${hop.cause}</span>`}
      <span class="quiet">${timesOf(hop, tree)}</span> <code class="quiet">${hop.edge}</code></div>
    <${Bar} hop=${hop} span=${span} />
    ${hop.record && html`<div class="record"><span class="unseen">record: </span>${hop.record}</div>`}
  </div>`;
}

/** What the acker has got of the tree, and its value after each report. */
function Xor({ tree }) {
  if (!tree.reports.length) return null;
  return html`<h4>XOR of the edges at ${tree.reports[0].acker}</h4>
    <p class="quiet">Each edge is reported twice, by the task that sends it and by the one that acks
      it. The acker keeps the XOR of all reports: zero means that the tree is complete.</p>
    <ol class="xor">${tree.reports.map((report, n) => html`<li key=${n}>
      <span class="quiet">after ${length(report.at_s - (tree.emitted_s ?? report.at_s))}, ${
        report.is_start ? "emitted" : "acked"}:</span> ${
        (report.edges.length ? report.edges : [report.xor]).map((edge, at) => html`${
          at > 0 && " ^ "}<code>${edge}</code>`)}
      ${" → "}<code class=${/^0+$/.test(report.value) ? "zero" : ""}>${report.value}</code></li>`)}</ol>`;
}

function Task({ task, href }) {
  return html`<a href=${href(task.replace(/\[\d+\]$/, ""))}>${task}</a>`;
}

const place = (worker) => (worker == null ? "" : html`<span class="quiet">worker ${worker}</span>`);

/** "sent after 1.2 ms, waited 3 ms, processed in 0.4 ms". */
function timesOf(hop, tree) {
  const ended = hop.acked_s ?? hop.refused_s;
  const parts = [];
  if (hop.sent_s != null && tree.emitted_s != null) {
    parts.push(`sent after ${length(hop.sent_s - tree.emitted_s)}`);
  }
  if (tree.outcome === "complete" && hop.acked_s == null) {
    parts.push("its worker has died, or recorded it too long ago");
  } else if (hop.delivered_s == null) {
    if (ended == null) parts.push("not processed");
  } else {
    if (hop.sent_s != null) parts.push(`waited ${length(hop.delivered_s - hop.sent_s)}`);
    parts.push(ended == null ? "not acked" : `processed in ${length(ended - hop.delivered_s)}`);
  }
  return parts.join(", ");
}

/** A duration between clocks of two machines may be slightly negative. */
const length = (seconds) => duration(Math.max(0, seconds));

function Bar({ hop, span }) {
  const at = (time) => (100 * (time - span.begin)) / span.length;
  const piece = (kind, from, to) => from != null && to != null && to >= from && html`<i class=${kind}
    style=${{ left: `${at(from)}%`, width: `${at(to) - at(from)}%` }}></i>`;
  return html`<div class="bar" aria-hidden="true">
    ${piece("queue", hop.sent_s, hop.delivered_s)}
    ${piece("execute", hop.delivered_s, hop.acked_s)}
    ${piece("refused", hop.delivered_s ?? hop.sent_s, hop.refused_s)}</div>`;
}
