// Two runs of experiments side by side: verdicts, what was lost, replays, recovery, figures.

import { html } from "./vendor/preact-htm.js";
import { longest, lost, shown, Verdict } from "./experiment.js";
import { count } from "./format.js";
import { linkToRuns } from "./route.js";
import { Table } from "./tables.js";

export function Comparison({ first, second }) {
  const both = [first, second];
  const columns = ["", "A", "B"];
  return html`
    <div class="title"><h1>Comparison</h1>
      <a class="button choices" href=${linkToRuns(second.run, first.run)}>Exchange A and B</a></div>
    ${both.some((run) => run.is_group) && html`<p class="quiet">The figures of a sweep or a repetition
      are medians.</p>`}
    <${Table} title="Outcome" caption="The two runs, and their outcomes" columns=${columns}>
      <${Row} name="run" cells=${both.map((run) => html`<a href=${linkToRuns(run.run)}>${run.run}</a>`)} />
      <${Row} name="verdict" cells=${both.map((run) => html`<${Verdict} verdict=${run.verdict} />`)} />
      <${Row} name="summary" cells=${both.map((run) => run.summary ?? run.error)} />
      <${Row} name="not completed" cells=${both.map((run) => count(lost(run.figures)))} />
      <${Row} name="longest recovery" cells=${both.map((run) => longest(run.recovery))} />
      ${both.every((run) => run.findings) && checkers(both).map((name) => html`<${Row} key=${name}
        name=${name} cells=${both.map((run) => html`<${Reasons} run=${run} name=${name} />`)} />`)}
    <//>
    <${Table} title="Parameters" caption="The parameters of both runs" columns=${columns}>
      <${Row} name="cluster" cells=${both.map((run) => run.cluster)} />
      <${Row} name="seed" cells=${both.map((run) => shown(run.seed))} />
      ${names(both, "parameters").map((name) => html`<${Row} key=${name} name=${name}
        cells=${both.map((run) => shown(run.parameters[name]))} />`)}
    <//>
    <${Table} title="Figures" caption="The figures of both runs, with their ratio"
      columns=${["", "A#", "B#", "B / A#"]}>${names(both, "figures").map((name) => {
        const [a, b] = both.map((run) => run.figures?.[name]);
        return html`<tr key=${name}><th scope="row">${name}</th><td class="number">${shown(a)}</td>
          <td class="number">${shown(b)}</td>
          <td class="number">${a && b != null ? `${(b / a).toFixed(2)}×` : ""}</td></tr>`;
      })}<//>`;
}

/** A row; what differs as text is marked, for all who see it. */
function Row({ name, cells }) {
  const differs = cells.every((cell) => typeof cell === "string") && cells[0] !== cells[1];
  return html`<tr class=${differs ? "differs" : ""}><th scope="row">${name}</th>
    ${cells.map((cell) => html`<td class="text">${cell ?? "–"}</td>`)}</tr>`;
}

function Reasons({ run, name }) {
  const finding = run.findings.find((candidate) => candidate.checker === name);
  if (!finding) return "–";
  return html`<${Verdict} verdict=${finding.verdict} />${finding.reasons.map((text) => html`<p
    key=${text}>${text}</p>`)}`;
}

const names = (both, field) => [...new Set(both.flatMap((run) => Object.keys(run[field] ?? {})))];
const checkers = (both) => [...new Set(both.flatMap((run) => run.findings.map((finding) => finding.checker)))];
