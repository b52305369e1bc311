// The section with what tasks have handed to Spark: sums, the last batch, and the open batches.

import { html } from "./vendor/preact-htm.js";
import { count, duration, elapsed } from "./format.js";
import { Table } from "./tables.js";

const KINDS = { waiting: "wait", "at Spark": "good", publishing: "done" };

export function Spark({ tasks, href }) {
  if (!tasks?.length) return null;
  const open = tasks.flatMap((task) => task.open.map((batch) => ({ ...batch, task })));
  return html`<${Table} title="Batches at Spark" caption="Open batches that tasks have handed to Spark"
      columns=${["batch", "task", "phase", "attempt#", "rows#", "age#"]}
      note=${!open.length && html`<p class="quiet">No batch is open.</p>`}>${open.map((one) => html`
      <tr key=${`${place(one.task)} ${one.batch}`}><th scope="row">${one.batch}</th>
        <td><a href=${href(one.task.component)}>${place(one.task)}</a></td>
        <td><span class=${`badge ${KINDS[one.phase] ?? "still"}`}>${one.phase}</span></td>
        <td class=${`number ${one.attempt > 1 ? "warn" : ""}`}>${one.attempt}</td>
        <td class="number">${count(one.rows)}</td><td class="number">${elapsed(one.age_s)}</td></tr>`)}<//>
    <${Table} title="Spark" caption="What each task has handed to Spark"
      columns=${["task", "batches#", "failed#", "Spark died#", "rows in#", "rows out#", "wait#",
        "hand-over#", "job#", "mean job#"]}
      note=${html`<p class="quiet">Wait, hand-over and job are of the batch that has ended last.</p>`}
      >${tasks.map((one) => html`<tr key=${place(one)}>
        <th scope="row"><a href=${href(one.component)}>${place(one)}</a></th>
        <td class="number">${count(one.batches)}</td>
        <td class=${`number ${one.failed ? "bad" : ""}`}>${count(one.failed)}</td>
        <td class=${`number ${one.lost ? "warn" : ""}`}>${count(one.lost)}</td>
        <td class="number">${count(one.rows_in)}</td><td class="number">${count(one.rows_out)}</td>
        ${["wait_s", "hand_over_s", "job_s", "mean_job_s"].map((name) =>
          html`<td class="number">${duration(one[name])}</td>`)}</tr>`)}<//>`;
}

const place = (task) => `${task.component}[${task.task}]`;
