// One topology: its state, problems, graph, charts, failures, components and workers.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { Actions } from "./actions.js";
import { Chart } from "./chart.js";
import { ComponentPanel } from "./component.js";
import { count, duration, elapsed, plural, rate, plain } from "./format.js";
import { GraphView } from "./graph.js";
import { State } from "./list.js";
import { derive, isInternal, problems, withoutInternals } from "./model.js";
import { Batches, Components, Failures, Workers } from "./tables.js";
import { Letters } from "./letters.js";
import { Logs } from "./logs.js";
import { linkTo, linkToLetter } from "./route.js";
import { Spark } from "./spark.js";
import { Trees } from "./trees.js";
import { NOW, WindowChoice, WindowRates, within } from "./windows.js";

/** `windows`: {chosen, shown: the one that `latest` has the numbers of, choose}. */
export function TopologyView({ name, facts: latest, history, component, root, letter, detail, isStale,
  windows }) {
  const now = useMemo(() => derive(latest, history), [latest]);
  const [facts, derived] = useMemo(() => {
    if (windows.shown === NOW) return [latest, now];
    const chosen = within(latest);
    return [chosen, derive(chosen, new WindowRates(latest))];
  }, [latest]);
  const current = problems(latest, now);
  const [hasInternals, setHasInternals] = useState(false);
  const seen = hasInternals ? derived : withoutInternals(derived);
  const spouts = derived.nodes.filter((node) => node.facts.kind === "spout");
  const href = (id) => linkTo(name, id);
  useAnnouncements(facts.state, current);
  const shown = component != null && derived.byId.get(component);
  return html`
    <div class="title"><h1>${name}</h1><${State} state=${facts.state} marks=${facts.marks} />
      <span class="quiet">up ${elapsed(facts.up_s)} · ${facts.layout} ·
        ${" "}${plural(facts.workers.length, "worker")}</span>
      <${Actions} name=${name} actions=${facts.actions} state=${facts.state} workers=${facts.workers.length} />
    </div>
    <${Limit} limit=${facts.progress?.limit} href=${href} />
    <${Problems} list=${current} href=${href} />
    <${WindowChoice} ...${windows} facts=${latest} />
    <${Totals} name=${name} spouts=${spouts} facts=${facts} />
    <div class=${`board${shown ? " split" : ""}${isStale ? " stale" : ""}`}>
      <div class="column">
        <section class="card" aria-labelledby="graph-title"><h2 id="graph-title">Graph</h2>
          ${derived.edges.length > withoutInternals(derived).edges.length && html`<label class="inline check"><input
            type="checkbox" checked=${hasInternals} onChange=${() => setHasInternals(!hasInternals)} />
            <span>Internals: coordinators, and streams of batches and watermarks</span></label>`}
          <${GraphView} derived=${seen} selected=${component} href=${href} /></section>
        <section class="card charts" aria-label="The last hour">
          ${charts(facts, now.nodes.filter((node) => node.facts.kind === "spout"))}</section>
        <${Failures} name=${name} groups=${facts.failures} hasLetters=${facts.dead_letters} href=${href} />
        <${Trees} name=${name} root=${root} href=${href} />
        ${(facts.dead_letters || letter != null) && html`<${Letters} name=${name} letter=${letter}
          dead=${now.nodes.reduce((sum, node) => sum + node.facts.dead, 0)}
          canReplay=${facts.actions.length > 0} href=${href} />`}
        <${Logs} name=${name} components=${Object.keys(facts.components).filter((id) =>
          hasInternals || !isInternal(id))} href=${href} />
        <${Batches} batches=${facts.batches} />
        <${Spark} tasks=${facts.spark} href=${href} />
        <${Components} derived=${seen} href=${href} tracked=${facts.tracked} />
        <${Workers} workers=${facts.workers} silent=${facts.silent} />
      </div>
      ${shown && html`<${ComponentPanel} key=${component} node=${shown} facts=${facts}
        derived=${seen} detail=${detail} close=${linkTo(name)} href=${href} />`}
      ${component != null && !shown && html`<p class="notice bad">There is no component
        ${" "}${component}. <a href=${linkTo(name)}>Close</a></p>`}
    </div>`;
}

/** The last hour as the master has it, and the present, which the tiles show. */
function charts(facts, spouts) {
  const { ago_s: ago, ...past } = facts.history;
  const times = [...ago.map((seconds) => Date.now() - 1e3 * seconds), Date.now()];
  const sum = (name) => spouts.reduce((all, node) => all + (node[name] ?? 0), 0);
  const of = (name, now) => [...past[name], now].map((value, n) => ({ wall: times[n], value }));
  const lag = lagOf(facts);
  const empty = "The chart begins in a few seconds.";
  return html`
    <${Chart} title=${!facts.tracked ? "Emitted tuples" : facts.batches.length ? "Complete trees of batches"
      : "Complete trees"} empty=${empty}
      series=${[{ label: facts.tracked ? "acked" : "emitted", kind: "good", points: of("done", sum("rate")) }]} />
    <${Chart} title="Failures and replays" empty=${empty}
      series=${[{ label: "failed", kind: "bad", points: of("failed", sum("failing")) },
        { label: "replayed", kind: "warn", points: of("replayed", sum("replaying")) }]} />
    ${(lag != null || past.lag.some((value) => value != null)) && html`<${Chart} title="Lag" unit=""
      empty=${empty} series=${[{ label: "records behind", kind: "warn", points: of("lag", lag) }]} />`}`;
}

/** The records that the sources have left; null: there is no lag, or it is not known. */
function lagOf(facts) {
  const known = (facts.progress?.sources ?? []).filter((source) => source.lag != null);
  return known.length ? known.reduce((sum, source) => sum + source.lag, 0) : null;
}

function Limit({ limit, href }) {
  if (!limit) return null;
  return html`<p class="notice limit"><strong>Why is it not faster?</strong> ${limit.text}${limit.component
    && html` <a href=${href(limit.component)}>Show ${limit.component}</a>`}</p>`;
}

function Totals({ name, spouts, facts }) {
  const sum = (name) => spouts.reduce((all, node) => all + node.facts[name], 0);
  const rates = (name) => spouts.reduce((all, node) => all + (node[name] ?? 0), 0);
  const slowest = (name) => spouts.reduce((longest, node) =>
    (node.facts[name] ?? -1) > (longest ?? -1) ? node.facts[name] : longest, null);
  const { sources = [], oldest_s: oldest = {}, event_age_s: age } = facts.progress ?? {};
  const late = sources.find((source) => source.falls_behind) ?? sources.find((source) =>
    source.catch_up_s !== 0) ?? sources[0];
  const oldestS = Math.max(0, ...Object.values(oldest));
  const rows = facts.batches.length ? Object.entries(facts.components).filter(([, component]) =>
    "rows emitted" in component.figures) : [];
  const cells = [
    rows.length ? ["rows a second", rate(rows.reduce((all, [id]) =>
      all + (facts.progress?.rows_s[id] ?? 0), 0)), ""]
      : [facts.tracked ? "acked a second" : "emitted a second", rate(rates("rate")), ""],
    rows.length && ["rows", count(rows.reduce((all, [, component]) => all + component.figures["rows emitted"], 0)), ""],
    !rows.length && [facts.tracked ? "acked" : "emitted", count(sum(facts.tracked ? "acked" : "emitted")), ""],
    ["failed", count(sum("failed")), sum("failed") ? "bad" : ""],
    ["dead letters", count(sum("dead")), sum("dead") ? "bad" : "",
      facts.dead_letters && linkToLetter(name)],
    ["pending", count(sum("pending")), "", null, oldestS >= 1 && `the oldest for ${elapsed(oldestS)}`],
    late && ["records behind", count(lagOf(facts)), late.falls_behind ? "bad" : "", null,
      sources.length > 1 ? `${late.component} ${late.trend}` : late.trend],
    age != null && ["event time", elapsed(Math.abs(age)), "", null,
      age < 0 ? "ahead of the clock" : "behind the clock"],
    ["latency p50", duration(slowest("p50_s")), ""],
    ["latency p99", duration(slowest("p99_s")), ""],
    ["restarts", count(facts.restarts), facts.restarts ? "warn" : ""],
  ];
  return html`<dl class="totals">${cells.filter(Boolean).map(([title, value, kind, link, more]) =>
    html`<div class=${kind}><dt>${link ? html`<a href=${link}>${title}</a>` : title}</dt>
      <dd>${value}${more && html`<span class="more-of">${more}</span>`}</dd></div>`)}</dl>`;
}

const WORDS = { bad: "problem", wait: "outage", info: "note" };

/** Keys that stay while the numbers of a problem change: so do its open traceback and the focus. */
function keysOf(list) {
  const seen = {};
  return list.map((problem) => {
    const key = `${problem.kind} ${problem.component ?? problem.title}`;
    seen[key] = (seen[key] ?? 0) + 1;
    return `${key} ${seen[key]}`;
  });
}

function Problems({ list, href }) {
  if (!list.length) return null;
  const keys = keysOf(list);
  return html`<section aria-label="What needs attention"><ul class="problems">${list.map((problem, n) => html`
    <li key=${keys[n]} class=${problem.kind}>
      <span class="badge">${WORDS[problem.kind]}</span>
      <div><strong>${problem.component ? html`<a href=${href(problem.component)}>${problem.title}</a>` : problem.title}
        </strong>${problem.text && html`<p>${plain(problem.text)}</p>`}
        ${problem.traceback && html`<details><summary>Traceback</summary>
          <pre tabindex="0">${plain(problem.traceback)}</pre></details>`}
      </div></li>`)}</ul></section>`;
}

/** Tells screen readers about a new state and new problems; numbers are not announced. */
function useAnnouncements(state, list) {
  const before = useRef({ state, keys: new Set() });
  const key = (problem) => `${problem.kind} ${problem.component ?? problem.title}`;
  const keys = list.map(key).sort().join("\n");
  useEffect(() => {
    const news = list.filter((problem) => !before.current.keys.has(key(problem))).map((problem) => problem.title);
    if (state !== before.current.state) news.unshift(`The topology is ${state}`);
    if (!list.length && before.current.keys.size) news.push("Nothing needs attention any more");
    before.current = { state, keys: new Set(list.map(key)) };
    if (news.length) document.getElementById("announcements").textContent = news.join(". ");
  }, [state, keys]);
}
