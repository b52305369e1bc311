// The section with the log: events, log records and printed lines of the user's code, the newest last.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import * as api from "./api.js";
import { clock, count, plural } from "./format.js";

const EVERY_MS = 1000;
const SHOWN = 500; // lines
const KINDS = { error: "bad", critical: "bad", warning: "warn" };

export function Logs({ name, components, href }) {
  const [isOpen, setIsOpen] = useState(false);
  const [component, setComponent] = useState("");
  const [text, setText] = useState("");
  const [lines, problem] = useLines(isOpen, name, component);
  const wanted = text.trim().toLowerCase();
  const matching = wanted ? lines.filter((line) =>
    `${line.text} ${line.event} ${line.logger}`.toLowerCase().includes(wanted)) : lines;
  return html`<section class="card logs" aria-labelledby="logs-title">
    <div class="panel-top"><h2 id="logs-title">Log</h2>
      <button type="button" aria-expanded=${isOpen} onClick=${() => setIsOpen(!isOpen)}>${
        isOpen ? "Hide" : "Show"}<span class="unseen"> the log</span></button></div>
    ${!isOpen && html`<p class="quiet">Events, log records, and what the code prints, as
      ${" "}<code>sunshower logs ${name}</code> shows them.</p>`}
    ${isOpen && html`<form class="search" role="search" aria-label="Log" onSubmit=${(event) => event.preventDefault()}>
      <label>component <select value=${component} onChange=${(event) => setComponent(event.target.value)}>
        <option value="">all</option>${components.map((id) => html`<option key=${id} value=${id}>${id}</option>`)}
        </select></label>
      <label class="wide">text <input type="search" value=${text} placeholder="in the line"
        onInput=${(event) => setText(event.target.value)} /></label></form>
    ${problem && html`<p class="notice bad" role="alert">${problem.message}</p>`}
    <${Lines} lines=${matching.slice(-SHOWN)} href=${href} />
    <p class="quiet more">${matching.length > SHOWN ? `the last ${count(SHOWN)} of ` : ""}${
      plural(matching.length, "line")}; the master keeps the last 2,000</p>`}
  </section>`;
}

/** The lines since the log began, asked for each second while they are shown; and an error. */
function useLines(isOpen, name, component) {
  const [state, setState] = useState({ lines: [], problem: null });
  useEffect(() => {
    if (!isOpen) return undefined;
    let [timer, after, isOver] = [null, 0, false];
    setState({ lines: [], problem: null });
    const look = async () => {
      try {
        const answer = document.hidden ? { lines: [], last: after } : await api.logs(name, component, after);
        if (isOver) return;
        after = answer.last;
        if (answer.lines.length) {
          setState((old) => ({ lines: [...old.lines, ...answer.lines].slice(-2_000), problem: null }));
        }
      } catch (problem) {
        if (isOver) return;
        setState((old) => ({ ...old, problem }));
      }
      timer = setTimeout(look, EVERY_MS);
    };
    look();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [isOpen, name, component]);
  return [state.lines, state.problem];
}

/** Scrolled to its end, unless the user has scrolled up. */
function Lines({ lines, href }) {
  const box = useRef(null);
  const isAtEnd = useRef(true);
  useEffect(() => {
    if (isAtEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines.at(-1)?.number]);
  const note = ({ target }) => {
    isAtEnd.current = target.scrollHeight - target.scrollTop - target.clientHeight < 30;
  };
  return html`<div class="lines" ref=${box} onScroll=${note} tabindex="0" role="region"
    aria-label="Lines of the log"><ol>${lines.map((line) => html`<li key=${line.number} class=${KINDS[line.level] ?? ""}>
      <span class="quiet">${clock(line.time)}</span> <b>${line.logger || line.event}</b>${" "}
      ${line.component ? html`<a href=${href(line.component)}>${line.component}${
        line.task == null ? "" : `[${line.task}]`}</a>` : line.worker == null ? "" : html`<span
        class="quiet">worker ${line.worker}</span>`}${" "}
      <span class="said">${line.text}</span>${line.count > 1 && html` <span class="quiet">${
        count(line.count)} times</span>`}</li>`)}</ol></div>
    ${!lines.length && html`<p class="quiet">There are no such lines yet.</p>`}`;
}
