// Shows where the time of a component's tasks goes, from its counters.

import { html } from "./vendor/preact-htm.js";
import { share } from "./format.js";

/** Busy: it runs user code, and sends what comes of it. Blocked: what it makes has no receiver. */
export function TimeSplit({ node }) {
  const rest = Math.max(0, 1 - node.capacity - node.blocked);
  const parts = [
    [node.isSpout ? "emits" : "runs its code", node.capacity],
    [node.isSpout ? "waits for credit or for open trees" : "waits for credit", node.blocked],
    ["idle, or waits for its turn", rest, "idle"],
  ];
  return html`<h3>Where its time goes</h3>
    <dl class="facts">${parts.map(([name, part, kind = ""]) => html`<div key=${name}><dt>${name}</dt>
      <dd>${share(part)} <span class=${`meter ${kind}`}><i style=${{ width: `${part * 100}%` }}></i></span>
      </dd></div>`)}</dl>`;
}
