// The counters of a component by output stream and by input stream.

import { html } from "./vendor/preact-htm.js";
import { count } from "./format.js";
import { isInternal } from "./model.js";

export function Streams({ facts }) {
  const outputs = Object.entries(facts.streams ?? {}).filter(([id]) => !isInternal(id));
  const inputs = (facts.inputs ?? []).filter((input) => !isInternal(input.stream));
  return html`
    ${inputs.length > 0 && html`<${Counters} title="Input streams" columns=${["executed"]}
      rows=${inputs.map((input) => [name(input), input.executed])} />`}
    ${outputs.length > 0 && html`<${Counters} title="Output streams"
      columns=${["emitted", "transferred", "bytes to others"]}
      rows=${outputs.map(([id, output]) => [id, output.emitted, output.transferred, output.bytes])} />`}`;
}

const name = (input) => (input.stream === "default" ? input.component : `${input.component}.${input.stream}`);

function Counters({ title, columns, rows }) {
  return html`<h3>${title}</h3><div class="scroll" tabindex="0" role="region" aria-label=${title}>
    <table class="rows"><caption class="unseen">${title}, with their counters</caption>
    <thead><tr><th scope="col">stream</th>${columns.map((column) =>
      html`<th scope="col" class="number">${column}</th>`)}</tr></thead>
    <tbody>${rows.map(([id, ...numbers]) => html`<tr key=${id}><th scope="row">${id}</th>
      ${numbers.map((number) => html`<td class="number">${count(number)}</td>`)}</tr>`)}
    </tbody></table></div>`;
}
