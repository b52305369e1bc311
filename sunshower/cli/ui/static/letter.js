// One dead letter: its place, error, record and traceback, and its replay.

import { html, useEffect, useRef } from "./vendor/preact-htm.js";
import { count, moment, plain } from "./format.js";
import { ReplayButton } from "./replay.js";
import { linkTo } from "./route.js";

export function LetterView({ letter, name, href, canReplay, started }) {
  const heading = useRef(null);
  const leave = () => {
    location.hash = linkTo(name);
    document.getElementById(`letter-${letter.letter}`)?.focus();
  };
  useEffect(() => {
    heading.current.focus();
    const listen = (event) => event.key === "Escape" && leave();
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
  const facts = [
    ["failed in", letter.component ? html`<a href=${href(letter.component)}>${placeOf(letter)}</a>`
      : "unknown"],
    ["worker", letter.worker ?? "–"],
    ["attempts", count(letter.attempts)],
    ["spout", html`<a href=${href(letter.spout)}>${letter.spout}</a>`],
    ["stream", letter.stream],
    ["time", moment(letter.time)],
  ];
  return html`<div class="letter" role="group" aria-labelledby="letter-title">
    <div class="panel-top"><h3 id="letter-title" tabindex="-1" ref=${heading}>Dead letter of message
      ${" "}<code>${letter.message}</code> <span class="badge bad">${letter.cause}</span>
      ${letter.replayed && html` <span class=${`badge ${letter.replayed === "acked" ? "good" : "bad"}`}>
        replayed: ${letter.replayed}</span>`}</h3>
      <button type="button" onClick=${leave}>Close<span class="unseen"> the letter</span></button></div>
    <p class="notice bad">${letter.reason || letter.cause}</p>
    <dl class="facts">${facts.map(([title, value]) =>
      html`<div key=${title}><dt>${title}</dt><dd>${value}</dd></div>`)}</dl>
    <h4>Record</h4>
    ${letter.record.length === 0 ? html`<p class="quiet">without fields</p>` : html`<dl class="record">
      ${letter.record.map((field) => html`<div key=${field.field}><dt>${field.field}</dt><dd>${field.value}
        ${field.is_text && html` <span class="quiet">(only a text of the value)</span>`}</dd></div>`)}</dl>`}
    ${letter.fields_left_out > 0 && html`<p class="quiet">… and ${count(letter.fields_left_out)} more
      fields: see <code>sunshower dead show</code></p>`}
    ${letter.traceback && html`<details class="error" open><summary>Traceback</summary>
      <pre tabindex="0">${plain(letter.traceback)}</pre></details>`}
    <p class="quiet">${letter.place}</p>
    ${canReplay && html`<${ReplayButton} name=${name} id="one" what="this dead letter"
      letters=${{ letter: letter.letter }} started=${started}
      text=${letter.replayed ? "Replay again" : "Replay this letter"} />`}
  </div>`;
}

/** "price[2]", "price" or "unknown". */
export const placeOf = ({ component, task }) =>
  component ? `${component}${task == null ? "" : `[${task}]`}` : "unknown";
