// Windows of time: the choice of one, the numbers of the topology in it, and a component's table.

import { html } from "./vendor/preact-htm.js";
import { count, duration, elapsed, rate, share } from "./format.js";

export const NOW = "now";
const WINDOWS = [[NOW, "now"], ["1m", "1 min"], ["10m", "10 min"], ["1h", "1 h"], ["all", "all"]];

/** `shown`: the window that `facts` have the numbers of; soon it is the `chosen` one. */
export function WindowChoice({ chosen, shown, choose, facts }) {
  return html`<div class="inline kinds windows"><span role="group" aria-label="Time of the numbers"
    class="inline">${WINDOWS.map(([name, text]) => html`<button type="button" key=${name}
      aria-pressed=${name === chosen} onClick=${() => choose(name)}>${text}</button>`)}</span>
    <span class="quiet">${explanation(shown, facts)}</span></div>`;
}

function explanation(shown, facts) {
  if (shown === NOW) return "rates of the last seconds, counters since the start";
  const for_s = lengthOf(facts);
  return shown === "all" ? `averages and counters since the start, ${elapsed(for_s)} ago`
    : `averages and counters of the last ${elapsed(for_s)}`;
}

const windowsOf = (facts) => Object.entries(facts.components).filter(([, component]) => component.window);

const lengthOf = (facts) => windowsOf(facts).reduce((longest, [, component]) =>
  Math.max(longest ?? 0, component.window.for_s), null);

/** The facts with the numbers of their window in place of those since the start. */
export function within(facts) {
  const components = Object.fromEntries(Object.entries(facts.components).map(([id, component]) => {
    const { for_s, capacity, blocked, ...numbers } = component.window ?? {};
    const complete = numbers.latencies?.complete ?? {};
    const percentiles = Object.fromEntries(["p50_s", "p90_s", "p99_s", "max_s"].map((name) =>
      [name, complete[name] ?? null]));
    return [id, component.window ? { ...component, ...numbers, ...percentiles } : component];
  }));
  return { ...facts, components };
}

/** Rates over the window of the facts, in place of those of a History. */
export class WindowRates {
  constructor(facts) {
    this.parts = Object.fromEntries(windowsOf(facts).map(([id, component]) => [id, component.window]));
    this.for_s = Math.max(lengthOf(facts) ?? 0, 1e-9);
  }

  rate(component, name) {
    const activity = this.parts[component];
    return activity ? (activity[name] ?? 0) / Math.max(activity.for_s, 1e-9) : null;
  }

  window() {
    const components = Object.fromEntries(Object.entries(this.parts).map(([id, activity]) => [id, {
      to: Object.fromEntries(Object.entries(activity.streams).map(([stream, sent]) =>
        [stream, sent.transferred])),
    }]));
    return { before: { components: {} }, last: { components }, for_s: this.for_s };
  }
}

/** What a component did in each window; `tracked`: whether its trees are. */
export function WindowsTable({ windows, isSpout, tracked }) {
  const done = isSpout ? (tracked ? "acked" : "emitted") : "executed";
  const kind = isSpout ? "complete" : "execute";
  const names = WINDOWS.filter(([name]) => windows[name]);
  const columns = ["a second", "failed", "capacity", "p50", "p99"];
  return html`<h3>Windows of time</h3><div class="scroll" tabindex="0" role="region"
    aria-label="Windows of time"><table class="rows windows-table"><caption class="unseen">What the component did in
      each window; latencies ${isSpout ? "until trees are complete" : "in its code"}</caption>
    <thead><tr><th scope="col">window</th>${columns.map((name) =>
      html`<th scope="col" class="number">${name}</th>`)}</tr></thead>
    <tbody>${names.map(([name, text]) => {
      const activity = windows[name];
      const latencies = activity.latencies[kind] ?? {};
      return html`<tr key=${name}><th scope="row">${text}${elapsed(activity.for_s) !== text
        && html` <span class="quiet short-of">${elapsed(activity.for_s)}</span>`}</th>
        <td class="number">${rate(activity[done] / Math.max(activity.for_s, 1e-9))}</td>
        <td class=${`number ${activity.failed ? "bad" : ""}`}>${count(activity.failed)}</td>
        <td class="number">${share(activity.capacity)}</td>
        ${["p50_s", "p99_s"].map((key) => html`<td class="number">${
          duration(latencies[key])}</td>`)}</tr>`;
    })}</tbody></table></div>`;
}
