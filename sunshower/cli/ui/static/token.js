// Asks for the token that actions need. Without it the page is read-only.

import { html, useState } from "./vendor/preact-htm.js";
import * as api from "./api.js";

/** `used()` is called once a token is kept for this browser tab; `cancel`, if given, by a button. */
export function TokenForm({ id, used, cancel }) {
  const [typed, setTyped] = useState("");
  const unlock = (event) => {
    event.preventDefault();
    api.keepToken(typed.trim());
    setTyped("");
    used();
  };
  return html`<form onSubmit=${unlock}>
    <label for=${id}>Token</label>
    <p class="quiet">This page is read-only. The command printed a token when it started: with it, you
      can act.</p>
    <div class="inline"><input id=${id} type="password" autocomplete="off" required value=${typed}
      onInput=${(event) => setTyped(event.target.value)} />
      <button type="submit">Use token</button>
      ${cancel && html`<button type="button" onClick=${cancel}>Cancel</button>`}</div></form>`;
}
