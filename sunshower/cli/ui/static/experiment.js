// The report of one run of an experiment, or of a sweep: verdicts, charts, recoveries, figures.

import { html } from "./vendor/preact-htm.js";
import { chartUrl, reportUrl } from "./api.js";
import { count, duration, figure, plural } from "./format.js";
import { linkToRuns } from "./route.js";
import { Table } from "./tables.js";

const VERDICTS = { HOLDS: ["good", "✔"], BROKEN: ["bad", "✘"], UNKNOWN: ["warn", "?"] };
const CAPTIONS = {
  topology: ["Topology", "Each component with its number of tasks, and how its inputs are grouped"],
  timeline: ["What happened", "Faults, throughput, pending trees, latency, replays and failures over time"],
  recovery: ["Recovery", "How long each fault's messages took until they were complete"],
};

/** A verdict as a coloured word with its sign; null: the run did not end. */
export function Verdict({ verdict }) {
  const [kind, sign] = VERDICTS[verdict] ?? ["still", ""];
  return html`<span class=${`badge ${kind}`}>${sign} ${verdict ?? "did not end"}</span>`;
}

export function Report({ run }) {
  return html`
    <div class="title"><h1>${run.experiment}</h1><${Verdict} verdict=${run.verdict} />
      <span class="quiet">${run.cluster} · seed ${run.seed} · ${run.run}</span>
      ${run.has_report && html`<a class="button choices" href=${reportUrl(run.run)} download>Save the
        report</a>`}</div>
    ${run.about && html`<p class="quiet">${run.about}</p>`}
    ${run.summary && html`<p class="notice">${run.summary}</p>`}
    ${run.error && html`<p class="notice bad">${run.error}</p>`}
    ${run.figures && html`<${Tiles} run=${run} />`}
    ${run.findings && html`<${Findings} findings=${run.findings} />`}
    ${charts(run).map((name) => html`<${Picture} key=${name} run=${run.run} name=${name} />`)}
    ${run.members && html`<${Members} run=${run} />`}
    ${run.recoveries?.length > 0 && html`<${Recoveries} run=${run} />`}
    <div class="pairs">
      <${Pairs} title=${run.members ? "Parameters of all runs" : "Parameters"} values=${run.parameters} />
      <${Pairs} title="Run" values=${run.facts} />
      <${Pairs} title="Figures" values=${run.figures} />
      <${Pairs} title="Versions" values=${run.versions} />
    </div>
    ${run.undone?.length > 0 && html`<section class="card" aria-labelledby="undone"><h2 id="undone">Not
      done</h2><ul class="plain">${run.undone.map((text) => html`<li key=${text}>${text}</li>`)}</ul></section>`}
    ${run.command && html`<section class="card" aria-labelledby="again"><h2 id="again">Run it again</h2>
      <pre tabindex="0">${run.command}</pre></section>`}`;
}

/** The charts in the order of the report: the topology, what happened, and the recoveries. */
function charts({ charts: names }) {
  const first = Object.keys(CAPTIONS).filter((name) => names.includes(name));
  return [...first, ...names.filter((name) => !(name in CAPTIONS))];
}

function Picture({ run, name }) {
  const what = name.replace("by-", "");
  const [title, caption] = CAPTIONS[name] ?? [`By ${what}`, `All runs by ${what}`];
  return html`<section class="card" aria-labelledby=${`chart-${name}`}><h2 id=${`chart-${name}`}>${title}</h2>
    <figure class="picture"><div class="scroll" tabindex="0" role="region" aria-label=${`Chart: ${caption}`}>
      <img src=${chartUrl(run, name)} alt=${caption} loading="lazy" /></div>
    <figcaption class="quiet">${caption}</figcaption></figure></section>`;
}

/** How many messages were emitted and not completed, dead letters apart; null: unknown. */
export const lost = (figures) => (figures?.messages == null ? null
  : Math.max(0, figures.messages - (figures.completed ?? 0) - (figures.dead ?? 0)));

/** The longest recovery: "0.4 s", "never" or "–". */
export const longest = (recovery) => (!recovery ? "–"
  : recovery.never ? "never" : duration(recovery.longest_s));

function Tiles({ run }) {
  const figures = run.figures;
  const cells = [
    ["messages", count(figures.messages), ""],
    ["not completed", count(lost(figures)), lost(figures) ? "bad" : ""],
    ["replays", count(figures.replays), figures.replays ? "warn" : ""],
    ["failed attempts", count(figures.failed), ""],
    ["duplicates", count(figures.duplicates), ""],
    ["longest recovery", longest(run.recovery), run.recovery?.never ? "bad" : ""],
    ["completed a second", figure(figures.throughput), ""],
    ["latency p99", duration(figures.latency_p99_s), ""],
  ];
  return html`<dl class="totals">${cells.map(([name, value, kind]) =>
    html`<div class=${kind}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function Findings({ findings }) {
  return html`<${Table} title="Verdicts" caption="What each checker found"
    columns=${["checker", "verdict", "why"]}>${findings.map((finding) => html`<tr key=${finding.checker}>
      <th scope="row">${finding.checker}</th><td><${Verdict} verdict=${finding.verdict} /></td>
      <td class="text">${finding.reasons.map((text) => html`<p key=${text}>${text}</p>`)}
        ${finding.evidence.length > 0 && html`<details open=${finding.verdict !== "HOLDS"}>
          <summary>${plural(finding.evidence_count, "line")} of evidence</summary>
          <pre tabindex="0">${finding.evidence.join("\n")}</pre></details>`}</td></tr>`)}<//>`;
}

function Members({ run }) {
  const names = Object.keys(run.members[0]?.values ?? {});
  return html`<${Table} title="Runs" caption="The runs of this sweep, with their parameters"
    columns=${["run", ...names.map((name) => `${name}#`), "verdict", "longest recovery#",
      "completed a second#", "replays#", "duplicates#"]}>${run.members.map((member) => html`
      <tr key=${member.run}><th scope="row"><a href=${linkToRuns(`${run.run}/${member.run}`)}>${member.run}</a></th>
        ${names.map((name) => html`<td class="number">${shown(member.values[name])}</td>`)}
        <td><${Verdict} verdict=${member.verdict} /></td>
        <td class="number">${member.recovers ? duration(member.recovery_s) : "never"}</td>
        <td class="number">${figure(member.throughput)}</td><td class="number">${count(member.replays)}</td>
        <td class="number">${count(member.duplicates)}</td></tr>`)}<//>`;
}

function Recoveries({ run }) {
  const more = run.recovery.count - run.recoveries.length;
  return html`<${Table} title="Recovery of each fault" caption="Each fault, and when its messages were complete"
    columns=${["fault", "began#", "ended#", "recovered after#"]}
    note=${more > 0 && html`<p class="quiet">The first ${run.recoveries.length} of ${run.recovery.count}</p>`}
    >${run.recoveries.map((recovery, n) => html`<tr key=${n}><th scope="row">${recovery.fault}</th>
      <td class="number">${recovery.begun_s.toFixed(2)} s</td><td class="number">${recovery.ended_s.toFixed(2)} s</td>
      <td class=${`number ${recovery.seconds == null ? "bad" : ""}`}>${recovery.seconds == null ? "never"
        : duration(recovery.seconds)}</td></tr>`)}<//>`;
}

function Pairs({ title, values }) {
  const all = Object.entries(values ?? {});
  if (!all.length) return null;
  return html`<${Table} title=${title} caption=${title} columns=${["name", "value#"]}>${all.map(
    ([name, value]) => html`<tr key=${name}><th scope="row">${words(name)}</th>
      <td class="number">${isTime(name, value) ? duration(value) : shown(value)}</td></tr>`)}<//>`;
}

/** "latency_p50_s" → "latency p50", whose value is then shown with its unit. */
export const words = (name) => name.replace(/_s$/, "").replaceAll("_", " ");
const isTime = (name, value) => typeof value === "number" && (name.endsWith("_s") || name === "seconds");

/** A parameter or figure for people: numbers formatted, what is no text as JSON. */
export const shown = (value) => (value === undefined ? "–" : typeof value === "number" ? figure(value)
  : typeof value === "string" ? value : JSON.stringify(value));
