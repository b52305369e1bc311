// Reads the address and the data each second, and shows a list, a topology or a component.

import { html, render, useEffect, useState } from "./vendor/preact-htm.js";
import { load as loadData } from "./data.js";
import { Experiments } from "./experiments.js";
import { TopologyList } from "./list.js";
import { History } from "./model.js";
import { linkTo, linkToRuns, route } from "./route.js";
import { TopologyView } from "./topology.js";
import { NOW } from "./windows.js";

const EVERY_MS = 1000;
const histories = new Map(); // topology → History, as long as this page is open

function historyOf(name) {
  if (!histories.has(name)) histories.set(name, new History());
  return histories.get(name);
}

async function load(where, period) {
  const [facts, detail] = await loadData(where, period === NOW ? null : period);
  historyOf(where.name).add(facts);
  return { name: where.name, component: where.component, period, facts, detail };
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

  const hasRuns = where.runs != null;
  useEffect(() => {
    if (hasRuns) return setProblem(null);
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
            const [{ topologies }] = await loadData(where, null);
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
  }, [where.name, where.component, hasRuns, period]);

  useEffect(() => {
    const subject = where.name ?? (hasRuns ? where.runs.join(" and ") || "Experiments" : null);
    document.title = subject ? `${subject} · Sunshower` : "Sunshower";
  }, [where]);

  useEffect(() => {
    labelCells();
    const observer = new MutationObserver(labelCells); // also of tables that are loaded later
    observer.observe(document.getElementById("main"), { childList: true, subtree: true });
    addEventListener("resize", labelCells);
    return () => {
      observer.disconnect();
      removeEventListener("resize", labelCells);
    };
  }, []);
  const shown = data && data.name === where.name ? data : null;
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="top">
      <a class="brand" href="#/"><img src="/static/icon.svg" alt="" width="26" height="26" />Sunshower</a>
      <${Path} where=${where} />
      ${!hasRuns && html`<${Connection} isOff=${problem != null && problem.status !== 404} />`}
    </header>
    <main id="main" tabindex="-1">
      ${problem?.status === 404 && html`<h1>${where.name ?? "Not found"}</h1>`}
      ${problem && html`<p class="notice bad" role="alert">${problem.message}
        ${problem.status === 404 && html` <a href="#/">All topologies</a>`}</p>`}
      ${hasRuns ? html`<${Experiments} runs=${where.runs} />` : where.name
        ? shown?.facts && html`<${TopologyView} key=${where.name} facts=${shown.facts}
            history=${historyOf(where.name)} component=${where.component} root=${where.root}
            name=${where.name} letter=${where.letter}
            windows=${{ chosen: period, shown: shown.period, choose: setPeriod }}
            detail=${shown.component === where.component ? shown.detail : null}
            isStale=${problem != null} />`
        : list && html`<${TopologyList} topologies=${list} />`}
      ${!problem && !hasRuns && !(where.name ? shown : list) && html`<p class="quiet">Loading …</p>`}
    </main>`;
}

/** On a narrow screen a table shows each row as a list: each cell needs the title of its column. */
function labelCells() {
  if (innerWidth > 700) return;
  for (const table of document.querySelectorAll("table.rows")) {
    const titles = [...table.querySelectorAll("thead tr > *")].map((cell) => cell.textContent);
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, n) => { cell.dataset.title = titles[n] ?? ""; });
    }
  }
}

function Path({ where }) {
  const runs = where.runs;
  return html`<nav aria-label="Path">
    <a href="#/" aria-current=${runs || where.name ? null : "page"}>Topologies</a>
    <a href=${linkToRuns()} aria-current=${runs && !runs.length ? "page" : null}>Experiments</a>
    ${where.name && html`<span aria-hidden="true">/</span><span aria-current="page">${where.name}</span>`}
  </nav>`;
}

/** The address keeps its route: only the focus moves. */
function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function Connection({ isOff }) {
  return html`<span class=${`live ${isOff ? "off" : ""}`}><i></i>${isOff ? "not live" : "live"}</span>`;
}

render(html`<${App} />`, document.getElementById("app"));
