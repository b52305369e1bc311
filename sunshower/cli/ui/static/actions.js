// Actions on a topology. Without the token of the command the page is read-only, and asks for it.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import * as api from "./api.js";
import { TokenForm } from "./token.js";

const WORDS = {
  activate: ["Activate", "The spouts emit again."],
  deactivate: ["Deactivate", "The spouts emit nothing; acks and failures go on."],
  rebalance: ["Rebalance", "Tasks are distributed over so many workers."],
  drain: ["Drain and end", "The spouts emit nothing new; pending tuples finish, and the run ends."],
  kill: ["Kill", "Pending tuples may finish; then the topology is removed."],
};
const CONFIRMED = new Set(["rebalance", "drain", "kill"]);

export function Actions({ name, actions, state, workers }) {
  const [count, setCount] = useState(null);
  const [asked, setAsked] = useState(null); // the action that waits for a confirmation
  const [isBusy, setIsBusy] = useState(false);
  const [message, setMessage] = useState(null);
  if (!actions.length) return null;

  const chosen = (action) => (action === "rebalance" ? count ?? workers : null);
  const act = async (action) => {
    setAsked(null);
    setIsBusy(true);
    setMessage({ kind: "", text: `${WORDS[action][0]} …` });
    try {
      setMessage({ kind: "good", text: await api.act(name, action, chosen(action)) });
    } catch (error) {
      if (error.status === 401) api.forgetToken();
      setMessage({ kind: "bad", text: error.message });
    }
    setIsBusy(false);
  };
  const isOffered = (action) => !(action === "activate" && state === "active") &&
    !(action === "deactivate" && state === "inactive");

  return html`<details class="actions"><summary class="button">Actions</summary>
    <div class="menu">
      ${message && html`<p class=${`notice ${message.kind}`} role="status">${message.text}</p>`}
      ${!api.token() ? html`<${TokenForm} id="token" used=${() => setMessage(null)} />`
        : asked ? html`<p><strong>${WORDS[asked][0]} ${name}?</strong></p>
          <${Consequences} name=${name} action=${asked} workers=${chosen(asked)} />
          <div class="inline"><button type="button" class="danger" disabled=${isBusy}
            onClick=${() => act(asked)}>${WORDS[asked][0]}</button>
            <button type="button" onClick=${() => setAsked(null)}>Cancel</button></div>`
        : html`<ul class="plain">${actions.filter(isOffered).map((action) => html`<li key=${action}>
            <div class="inline"><button type="button" disabled=${isBusy}
              class=${CONFIRMED.has(action) ? "danger" : ""}
              onClick=${() => (CONFIRMED.has(action) ? setAsked(action) : act(action))}>
              ${WORDS[action][0]}${CONFIRMED.has(action) ? " …" : ""}</button>
              ${action === "rebalance" && html`<label for="workers">workers</label>
                <input id="workers" type="number" min="1" value=${count ?? workers}
                  onInput=${(event) => setCount(Number(event.target.value) || null)} />`}</div>
            <p class="quiet">${WORDS[action][1]}</p></li>`)}</ul>`}
    </div></details>`;
}

/** What will happen, before it does. */
function Consequences({ name, action, workers }) {
  const [lines, setLines] = useState(null);
  useEffect(() => {
    let isOver = false;
    const show = (shown) => isOver || setLines(shown);
    api.consequences(name, action, workers).then((answered) => show(answered.lines), () => show([WORDS[action][1]]));
    return () => {
      isOver = true;
    };
  }, [name, action, workers]);
  return html`<ul class="what-happens" aria-live="polite">${(lines ?? []).map((line) =>
    html`<li key=${line}>${line}</li>`)}</ul>`;
}
