// The section with dead letters: a search, the newest that match, one of them, and replays.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import * as api from "./api.js";
import { count, moment, plural } from "./format.js";
import { LetterView, placeOf } from "./letter.js";
import { State, useLoaded } from "./loading.js";
import { ReplayButton, ReplayProgress, useProgress } from "./replay.js";
import { linkTo, linkToLetter } from "./route.js";

const NOTHING = { component: "", cause: "", text: "", since: "", until: "", group: "" };

/** `letter`: an id; "" opens the list alone. `dead`: how many the topology has counted; `canReplay`:
 * whether this server takes actions. */
export function Letters({ name, letter, dead, canReplay, href }) {
  const heading = useRef(null);
  const [isOpen, setIsOpen] = useState(letter != null);
  const [round, setRound] = useState(0); // grows with each refresh
  const [chosen, setChosen] = useState(NOTHING);
  const isShown = isOpen || letter != null;
  const refresh = () => setRound((before) => before + 1);
  const list = useLoaded(isShown, () => api.letters(name, conditions(chosen)),
    [name, JSON.stringify(chosen), round]);
  const opened = useLoaded(Boolean(letter), () => api.letter(name, letter), [name, letter, round]);
  const [progress, follow] = useProgress(isShown, name, refresh);
  useEffect(() => {
    if (letter !== "") return;
    setIsOpen(true);
    heading.current.focus();
  }, [letter]);
  const close = () => {
    setIsOpen(false);
    if (letter != null) location.hash = linkTo(name);
  };
  return html`<section class="card letters" aria-labelledby="letters-title">
    <div class="panel-top"><h2 id="letters-title" tabindex="-1" ref=${heading}>Dead letters</h2><span class="inline">
      ${isShown && html`<button type="button" onClick=${refresh}>Refresh<span class="unseen"> the dead
        letters</span></button>`}
      <button type="button" aria-expanded=${isShown} onClick=${isShown ? close
        : () => setIsOpen(true)}>${isShown ? "Hide" : "Show"}<span class="unseen"> dead
        letters</span></button></span></div>
    ${!isShown && html`<p class="quiet">Records that have used up their attempts, with the error of the
      last one${dead ? html`: <b class="bad">${count(dead)}</b> since the start` : ""}. They are read
      when this is opened.</p>`}
    ${isShown && html`<${Search} data=${list.data} chosen=${chosen} choose=${setChosen} />`}
    ${isShown && html`<${State} loaded=${list} text="Reading the dead letters …" />`}
    ${isShown && list.data && html`<${Groups} groups=${list.data.groups} chosen=${chosen}
      choose=${setChosen} />`}
    ${isShown && list.data && html`<${List} name=${name} list=${list.data} shown=${letter} />`}
    ${isShown && canReplay && list.data?.new > 0 && html`<${ReplayButton} name=${name} id="all"
      what=${plural(list.data.new, "dead letter")} letters=${shown(list.data, chosen)} started=${follow}
      text=${`Replay ${list.data.new === 1 ? "it" : `all ${count(list.data.new)}`}`} />`}
    ${isShown && html`<${ReplayProgress} progress=${progress} />`}
    ${letter && html`<${State} loaded=${opened} text="Reading the letter …" />`}
    ${opened.data && html`<${LetterView} key=${letter} letter=${opened.data} name=${name} href=${href}
      canReplay=${canReplay} started=${follow} />`}
  </section>`;
}

/** The conditions that are not empty, as the server takes them: times in Unix seconds. */
function conditions(chosen) {
  const time = (text) => (text ? `${new Date(text).getTime() / 1e3}` : "");
  const all = { ...chosen, text: chosen.text.trim(), since: time(chosen.since),
    until: time(chosen.until) };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value));
}

/** Conditions that select no letters that came after the list was read. */
function shown(list, chosen) {
  return { ...conditions(chosen), ...(list.until != null && { until: `${list.until}` }) };
}

function Search({ data, chosen, choose }) {
  const [typed, setTyped] = useState(chosen);
  const [known, setKnown] = useState({ components: {}, causes: {} });
  useEffect(() => {
    if (data) setKnown(data); // the choices stay while others are loaded
  }, [data]);
  const set = (field) => (event) => setTyped({ ...typed, [field]: event.target.value });
  const search = (event) => {
    event.preventDefault();
    choose(typed);
  };
  const clear = () => {
    setTyped(NOTHING);
    choose(NOTHING);
  };
  const select = (field, title, counts) => html`<label>${title}
    <select value=${typed[field]} onChange=${set(field)}><option value="">any</option>
      ${Object.entries(counts).map(([value, number]) => html`<option key=${value} value=${value}>${
        value} (${count(number)})</option>`)}</select></label>`;
  return html`<form class="search" role="search" aria-label="Dead letters" onSubmit=${search}>
    ${select("component", "failed in", known.components)}${select("cause", "cause", known.causes)}
    <label class="wide">text <input type="search" value=${typed.text} onInput=${set("text")}
      placeholder="in the record or the error" /></label>
    <label class="wide">from <input type="datetime-local" value=${typed.since} onInput=${set("since")} /></label>
    <label class="wide">until <input type="datetime-local" value=${typed.until} onInput=${set("until")} /></label>
    <span class="inline"><button type="submit">Search</button>
      ${chosen !== NOTHING && html`<button type="button" onClick=${clear}>Clear</button>`}</span></form>`;
}

/** Letters that differ in their records only; a group can be chosen, and then be replayed. */
function Groups({ groups, chosen, choose }) {
  if (!groups.length) return null;
  const toggle = (group) => choose({ ...chosen, group: chosen.group === group ? "" : group });
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Groups of dead letters"><table class="rows">
    <caption class="unseen">Dead letters, grouped by component and message</caption>
    <thead><tr>${["what", "failed in", "letters#", "not replayed#", "first", "last", "newest record"].map((title) =>
      html`<th scope="col" class=${title.endsWith("#") ? "number" : ""}>${title.replace("#", "")}</th>`)}</tr></thead>
    <tbody>${groups.map((group) => html`<tr key=${group.group} class=${group.group === chosen.group ? "chosen" : ""}>
      <th scope="row" class="text"><button type="button" class="link" aria-pressed=${group.group === chosen.group}
        onClick=${() => toggle(group.group)}>${group.message || group.cause}</button></th>
      <td>${group.component ?? "unknown"}</td><td class="number">${count(group.count)}</td>
      <td class="number">${count(group.new)}</td><td>${moment(group.first)}</td><td>${moment(group.last)}</td>
      <td><div class="short code" title=${group.record}>${group.record}</div></td></tr>`)}</tbody></table></div>`;
}

function List({ name, list, shown }) {
  const { letters } = list;
  const wasReplayed = letters.some((entry) => entry.replayed);
  return html`
    ${list.notes.map((text) => html`<p class="notice" key=${text}>${text}</p>`)}
    <p class="quiet">${list.matching === list.all ? plural(list.all, "dead letter")
      : `${count(list.matching)} of ${plural(list.all, "dead letter")}`}${list.matching > letters.length
      ? `; the newest ${count(letters.length)} are shown` : ""}${list.places.length > 0
      && html` · ${list.places.slice(0, 3).map((place) => html`<code key=${place}>${place}</code> `)}`}${
      list.places.length > 3 ? `and ${count(list.places.length - 3)} more` : ""}</p>
    ${letters.length > 0 && html`<div class="scroll list" tabindex="0" role="region"
      aria-label="List of dead letters"><table class="rows">
      <caption class="unseen">Dead letters, the newest first</caption>
      <thead><tr>${["time", "failed in", "cause", "error", "record", ...(wasReplayed ? ["replayed"] : [])].map((title) =>
        html`<th scope="col">${title}</th>`)}</tr></thead>
      <tbody>${letters.map((letter) => html`<tr key=${letter.letter}
        class=${letter.letter === shown ? "chosen" : ""}>
        <th scope="row"><a href=${linkToLetter(name, letter.letter)} id=${`letter-${letter.letter}`}
          aria-current=${letter.letter === shown ? "true" : null}>${moment(letter.time)}</a></th>
        <td>${placeOf(letter)}</td><td><span class="badge bad">${letter.cause}</span></td>
        <td><div class="short" title=${letter.error}>${letter.error}</div></td>
        <td><div class="short code" title=${letter.record}>${letter.record}</div></td>
        ${wasReplayed && html`<td>${letter.replayed && html`<span
          class=${`badge ${letter.replayed === "acked" ? "good" : "bad"}`}>${
          letter.replayed}</span>`}</td>`}</tr>`)}</tbody></table></div>`}`;
}
