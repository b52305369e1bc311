// The runs of experiments: their list, and which run or comparison is shown.

import { html, useState } from "./vendor/preact-htm.js";
import * as api from "./api.js";
import { Comparison } from "./comparison.js";
import { Report, Verdict } from "./experiment.js";
import { count, plural } from "./format.js";
import { State, useLoaded } from "./loading.js";
import { linkToRuns } from "./route.js";

/** `runs`: none for the list, one for its report, two for a comparison. */
export function Experiments({ runs }) {
  if (!runs.length) return html`<${RunList} />`;
  const load = () => Promise.all(runs.slice(0, 2).map(api.experiment));
  return html`<${Runs} key=${JSON.stringify(runs)} runs=${runs} load=${load} />`;
}

function Runs({ runs, load }) {
  const loaded = useLoaded(true, load, [runs, 0]);
  const reports = loaded.data;
  return html`<${State} loaded=${loaded} text="Loading …" />
    ${reports?.length === 1 && html`<${Report} run=${reports[0]} />`}
    ${reports?.length === 2 && html`<${Comparison} first=${reports[0]} second=${reports[1]} />`}`;
}

function RunList() {
  const [round, setRound] = useState(0); // grows with each refresh
  const [chosen, setChosen] = useState([]);
  const loaded = useLoaded(true, api.experiments, ["list", round]);
  const choose = (run) => setChosen(chosen.includes(run)
    ? chosen.filter((other) => other !== run) : [...chosen, run].slice(-2));
  const compare = () => { location.hash = linkToRuns(...chosen); };
  const list = loaded.data;
  return html`<section aria-labelledby="experiments">
    <div class="title"><h1 id="experiments">Experiments</h1>
      ${list && html`<span class="quiet">in the folder <code>${list.folder}</code></span>`}
      <span class="inline choices"><button type="button" onClick=${() => setRound(round + 1)}>Refresh</button>
        <button type="button" disabled=${chosen.length < 2} onClick=${compare}>Compare ${chosen.length}
          ${" "}of 2</button></span></div>
    <${State} loaded=${loaded} text="Loading the runs …" />
    ${list && !list.runs.length && html`<p class="card">This folder has no run yet. Make one:
      ${" "}<code>sunshower experiment run FILE.py</code></p>`}
    ${list?.runs.length > 0 && html`<${Rows} runs=${list.runs} chosen=${chosen} choose=${choose} />`}
    ${list && list.count > list.runs.length && html`<p class="quiet more">The newest
      ${" "}${plural(list.runs.length, "run")} of ${count(list.count)}</p>`}
  </section>`;
}

const COLUMNS = ["compare", "experiment", "verdict", "begun", "cluster", "seed", "runs"];
const NUMBERS = ["seed", "runs"];

function Rows({ runs, chosen, choose }) {
  return html`<div class="scroll card runs" tabindex="0" role="region" aria-label="Runs of experiments">
    <table class="rows"><caption class="unseen">Runs of experiments, the newest first</caption>
    <thead><tr>${COLUMNS.map((name) => html`<th scope="col"
      class=${NUMBERS.includes(name) ? "number" : ""}>${name}</th>`)}</tr></thead>
    <tbody>${runs.map((run) => html`<tr key=${run.run}
      class=${chosen.includes(run.run) ? "chosen" : ""}>
      <td><input type="checkbox" aria-label=${`Compare ${run.run}`} disabled=${run.error != null}
        checked=${chosen.includes(run.run)} onChange=${() => choose(run.run)} /></td>
      <th scope="row"><a href=${linkToRuns(run.run)}>${run.experiment}</a></th>
      ${run.error != null
        ? html`<td class="text bad" colspan="5">${run.error}</td>`
        : html`<td><${Verdict} verdict=${run.verdict} /></td>
          <td class="when">${moment(run.begun)}</td><td>${run.cluster}</td>
          <td class="number">${run.seed}</td><td class="number">${run.members ?? ""}</td>`}
      </tr>`)}</tbody></table></div>`;
}

/** "2026-01-31T12:04:11.2+00:00" → "2026-01-31 12:04:11". */
const moment = (text) => String(text ?? "–").slice(0, 19).replace("T", " ");
