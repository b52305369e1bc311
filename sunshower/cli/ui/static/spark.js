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
      note=${!open.length && html`<p class="quiet">No batch is open.</p>`}>${open.map((batch) => html`
      <tr key=${`${place(batch.task)} ${batch.batch}`}><th scope="row">${batch.batch}</th>
        <td><a href=${href(batch.task.component)}>${place(batch.task)}</a></td>
        <td><span class=${`badge ${KINDS[batch.phase] ?? "still"}`}>${batch.phase}</span></td>
        <td class=${`number ${batch.attempt > 1 ? "warn" : ""}`}>${batch.attempt}</td>
        <td class="number">${count(batch.rows)}</td><td class="number">${elapsed(batch.age_s)}</td></tr>`)}<//>
    <${Table} title="Spark" caption="What each task has handed to Spark"
      columns=${["task", "batches#", "failed#", "Spark died#", "rows in#", "rows out#", "wait#",
        "hand-over#", "job#", "mean job#"]}
      note=${html`<p class="quiet">Wait, hand-over and job are of the batch that has ended last.</p>`}
      >${tasks.map((task) => html`<tr key=${place(task)}>
        <th scope="row"><a href=${href(task.component)}>${place(task)}</a></th>
        <td class="number">${count(task.batches)}</td>
        <td class=${`number ${task.failed ? "bad" : ""}`}>${count(task.failed)}</td>
        <td class=${`number ${task.lost ? "warn" : ""}`}>${count(task.lost)}</td>
        <td class="number">${count(task.rows_in)}</td><td class="number">${count(task.rows_out)}</td>
        ${["wait_s", "hand_over_s", "job_s", "mean_job_s"].map((name) =>
          html`<td class="number">${duration(task[name])}</td>`)}</tr>`)}<//>`;
}

const place = (task) => `${task.component}[${task.task}]`;
