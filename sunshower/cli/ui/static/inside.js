// What is inside a component, on demand: the user's code, the values of its state, and a profile.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import * as api from "./api.js";
import { clock } from "./format.js";
import { State, useLoaded } from "./loading.js";
import { TokenForm } from "./token.js";

/** `canAct`: whether the server takes actions, such as a profile. */
export function Inside({ name, node, canAct }) {
  return html`<h3>Inside</h3>
    ${!node.isInternal && html`<${Code} name=${name} component=${node.id} />`}
    ${node.facts.state_entries != null && html`<${Lookup} name=${name} component=${node.id} />`}
    ${canAct && html`<${Profile} name=${name} component=${node.id} />`}`;
}

/** A part that loads what it shows when it is opened. */
function Part({ title, children, isOpen, setIsOpen }) {
  return html`<details class="part" open=${isOpen} onToggle=${(event) => setIsOpen(event.target.open)}>
    <summary>${title}</summary>${isOpen && children}</details>`;
}

function Code({ name, component }) {
  const [isOpen, setIsOpen] = useState(false);
  const loaded = useLoaded(isOpen, () => api.code(name, component), [name, component, 0]);
  return html`<${Part} title="Its code" isOpen=${isOpen} setIsOpen=${setIsOpen}>
    <${State} loaded=${loaded} text="Reading the code …" />
    ${loaded.data?.parts.length === 0 && html`<p class="quiet">No function or class of your program is
      in it.</p>`}
    ${loaded.data?.parts.map((part) => html`<div key=${part.place}><p><code>${part.name}</code>
      ${" "}<span class="quiet">${part.place}</span></p>
      ${part.text ? html`<pre tabindex="0">${part.text}</pre>` : html`<p class="quiet">Its source cannot be
        read where its worker runs.</p>`}</div>`)}<//>`;
}

function Lookup({ name, component }) {
  const [isOpen, setIsOpen] = useState(false);
  const [typed, setTyped] = useState("");
  const [key, setKey] = useState("");
  const [round, setRound] = useState(0);
  const loaded = useLoaded(isOpen, () => api.state(name, component, key), [name, component, key, round]);
  const search = (event) => {
    event.preventDefault();
    setKey(typed.trim());
    setRound((before) => before + 1);
  };
  const entries = loaded.data?.entries;
  return html`<${Part} title="Its state: look up a key" isOpen=${isOpen} setIsOpen=${setIsOpen}>
    <form class="inline" role="search" aria-label="Keys of the state" onSubmit=${search}>
      <label class="unseen" for="state-key">Key</label>
      <input id="state-key" value=${typed} placeholder='a key: de, 7, or ["de", 7]'
        onInput=${(event) => setTyped(event.target.value)} /><button type="submit">Look up</button></form>
    <${State} loaded=${loaded} text="Asking its task …" />
    ${entries && !loaded.error && (entries.length === 0 ? html`<p class="notice">${key ? `There is no value for ${key}.`
      : "The state has no key yet."}</p>` : html`<p class="quiet">${key ? "as the last batch has written it"
      : "some of its keys"}</p><dl class="record">${entries.map((entry) => html`<div key=${entry.key}>
        <dt>${entry.key}</dt><dd>${entry.value}</dd></div>`)}</dl>`)}<//>`;
}

function Profile({ name, component }) {
  const [isOpen, setIsOpen] = useState(false);
  const [round, setRound] = useState(0);
  const [state, setState] = useState({}); // {isBusy, problem}
  const isOver = useRef(false);
  useEffect(() => () => { isOver.current = true; }, []);
  const loaded = useLoaded(round > 0, () => api.profiled(name), [name, round]);
  const start = async () => {
    setState({ isBusy: true });
    try {
      await api.profile(name, component);
      if (isOver.current) return;
      setState({});
      setRound((before) => before + 1);
    } catch (problem) {
      if (isOver.current) return;
      if (problem.status === 401) api.forgetToken();
      setState({ problem });
    }
  };
  const profile = loaded.data;
  return html`<${Part} title="Where its time goes, function by function" isOpen=${isOpen} setIsOpen=${setIsOpen}>
    ${state.problem && html`<p class="notice bad" role="alert">${state.problem.message}</p>`}
    ${!api.token() ? html`<${TokenForm} id="token-profile" used=${() => setState({})} />`
      : html`<p><button type="button" disabled=${state.isBusy} onClick=${start}>${state.isBusy
        ? "Recording …" : "Record 5 s"}</button> <span class="quiet">all tasks of its workers; as
        ${" "}<code>sunshower profile</code></span></p>`}
    ${profile && html`${profile.remarks.map((text) => html`<p class="notice" key=${text}>${text}</p>`)}
      <div class="scroll" tabindex="0" role="region" aria-label="Shares of the time"><table class="rows">
        <caption class="unseen">The share of each part of the work</caption><thead><tr>${profile.columns.map((title, n) =>
          html`<th scope="col" class=${n ? "number" : ""}>${title}</th>`)}</tr></thead>
        <tbody>${profile.rows.map(([first, ...cells]) => html`<tr key=${first}><th scope="row">${first}</th>
          ${cells.map((cell) => html`<td class="number">${cell}</td>`)}</tr>`)}</tbody></table></div>
      <p class="quiet">${profile.title}, ${clock(profile.at_s)}. ${profile.runtime}</p>
      <a href=${api.graphUrl(name, profile.at_s)} target="_blank" rel="noopener"><img class="flames"
        src=${api.graphUrl(name, profile.at_s)} alt=${`Flame graph of ${profile.graph}`} />
        Open the flame graph in a tab, where a click enlarges a box</a>`}<//>`;
}
