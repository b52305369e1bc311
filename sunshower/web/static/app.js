// Reads the address and the data each second, and shows a list, a topology or a component.

import { html, render, useEffect, useState } from "./vendor/preact-htm.js";
import * as api from "./api.js";
import { TopologyList } from "./list.js";
import { History } from "./model.js";
import { linkTo, route } from "./route.js";
import { TopologyView } from "./topology.js";
import { NOW } from "./windows.js";

const EVERY_MS = 1000;
const histories = new Map(); // topology → History, as long as this page is open

function historyOf(name) {
  if (!histories.has(name)) histories.set(name, new History());
  return histories.get(name);
}

async function load({ name, component }, period) {
  const [found, detail] = await Promise.all([
    name ? api.topology(name, period === NOW ? null : period) : null,
    name && component ? api.component(name, component).catch((error) => ({ error })) : null,
  ]);
  if (found) historyOf(name).add(found);
  return { name, component, period, found, detail };
}

function App() {
  const [where, setWhere] = useState(route);
  const [period, setPeriod] = useState(NOW);
  const [list, setList] = useState(null);
  const [data, setData] = useState(null);
  const [problem, setProblem] = useState(null);

  useEffect(() => {
    const change = () => setWhere(route());
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);

  useEffect(() => {
    let timer = null;
    let isOver = false;
    const tick = async () => {
      clearTimeout(timer);
      try {
        if (!document.hidden) {
          if (where.name) {
            const loaded = await load(where, period);
            if (isOver) return;
            setData(loaded);
          } else {
            const { topologies } = await api.topologies();
            if (isOver) return;
            setList(topologies);
            const isOnly = topologies.length === 1 && !location.hash;
            if (isOnly) location.replace(linkTo(topologies[0].topology));
          }
          setProblem(null);
        }
      } catch (error) {
        if (isOver) return;
        setProblem(error);
      }
      if (!isOver) timer = setTimeout(tick, EVERY_MS);
    };
    tick();
    document.addEventListener("visibilitychange", tick);
    return () => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", tick);
    };
  }, [where.name, where.component, period]);

  useEffect(() => {
    document.title = where.name ? `${where.name} · Sunshower` : "Sunshower";
  }, [where.name]);

  const shown = data && data.name === where.name ? data : null;
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="top">
      <a class="brand" href="#/"><img src="/static/icon.svg" alt="" width="26" height="26" />Sunshower</a>
      ${where.name && html`<nav aria-label="Path"><a href="#/">Topologies</a>
        <span aria-hidden="true">/</span><span aria-current="page">${where.name}</span></nav>`}
      <${Connection} problem=${problem} />
    </header>
    <main id="main" tabindex="-1">
      ${problem && html`<p class="notice bad" role="alert">${problem.message}
        ${problem.status === 404 && html` <a href="#/">All topologies</a>`}</p>`}
      ${where.name
        ? shown?.found && html`<${TopologyView} key=${where.name} facts=${shown.found}
            history=${historyOf(where.name)} component=${where.component} root=${where.root}
            name=${where.name} letter=${where.letter}
            windows=${{ chosen: period, shown: shown.period, choose: setPeriod }}
            detail=${shown.component === where.component ? shown.detail : null}
            isStale=${problem != null} />`
        : list && html`<${TopologyList} topologies=${list} />`}
      ${!problem && !(where.name ? shown : list) && html`<p class="quiet">Loading …</p>`}
    </main>`;
}

/** The address keeps its route: only the focus moves. */
function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function Connection({ problem }) {
  return html`<span class=${`live ${problem ? "off" : ""}`}><i></i>${problem ? "not live" : "live"}</span>`;
}

render(html`<${App} />`, document.getElementById("app"));
