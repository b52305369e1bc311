// Derives what the page shows from the facts of a topology: rates, capacity, edges, problems.
// Nothing here touches the document.

import { count, elapsed, plural, timeOfDay } from "./format.js";

const WINDOW_S = 5; // rates are averages over this time
const SUMS = ["emitted", "transferred", "executed", "acked", "failed", "replayed", "busy_s", "blocked_s"];

/** The counters of a topology in the last seconds, one sample for each answer. */
export class History {
  constructor() {
    this.samples = []; // {at: seconds since the submission, components}
  }

  /** Add an answer. An older or repeated one is ignored; after a new start all begins anew. */
  add(facts) {
    const last = this.samples.at(-1);
    if (last && facts.up_s < last.at - 5) this.samples = [];
    else if (last && facts.up_s <= last.at) return;
    const components = {};
    for (const [id, component] of Object.entries(facts.components)) {
      components[id] = Object.fromEntries(SUMS.map((name) => [name, component[name]]));
      components[id].to = Object.fromEntries(
        Object.entries(component.streams).map(([stream, sent]) => [stream, sent.transferred]));
    }
    this.samples.push({ at: facts.up_s, components });
    while (this.samples[1]?.at < facts.up_s - 2 * WINDOW_S) this.samples.shift();
  }

  /** Two samples that are about WINDOW_S apart; before there are two: the submission and now. */
  window() {
    const last = this.samples.at(-1);
    if (!last) return null;
    let first = this.samples.length - 1;
    while (first > 0 && last.at - this.samples[first].at < WINDOW_S) first -= 1;
    const before = first < this.samples.length - 1 ? this.samples[first] : { at: 0, components: {} };
    return { before, last, for_s: Math.max(last.at - before.at, 1e-9) };
  }

  /** Per second, for a counter of a component. Counters go back when processes are lost: 0 then. */
  rate(component, name) {
    const period = this.window();
    return period ? slope(period.before, period.last, component, name) : null;
  }
}

function slope(before, after, component, name) {
  const grown = (after.components[component]?.[name] ?? 0) -
    (before.components[component]?.[name] ?? 0);
  return Math.max(grown, 0) / Math.max(after.at - before.at, 1e-9);
}

/** Rates, capacity and marks of each component, and the rate of each edge. */
export function derive(facts, history) {
  const nodes = Object.entries(facts.components).map(([id, component]) => {
    const isSpout = component.kind === "spout" || "rows emitted" in component.figures;
    const done = isSpout ? (facts.tracked ? "acked" : "emitted") : "executed";
    const busy = history.rate(id, "busy_s");
    return {
      id,
      isSpout,
      facts: component,
      rate: facts.progress?.rows_s[id] ?? history.rate(id, done),
      failing: history.rate(id, "failed"),
      replaying: history.rate(id, "replayed"),
      capacity: Math.min((busy ?? 0) / component.parallelism, 1),
      busiest: uneven(facts.progress?.busy[id]),
      blocked: Math.min((history.rate(id, "blocked_s") ?? 0) / component.parallelism, 1),
      waits: facts.waiting.filter((wait) => wait.component === id),
      stuck: facts.stuck.filter((call) => call.component === id),
      quarantined: facts.quarantined.filter((error) => error.component === id),
      isBottleneck: id === facts.progress?.bottleneck,
      isInternal: isInternal(id),
    };
  });
  const isPlaced = nodes.some((node) => !node.isSpout && isFailing(node)); // else only the spout knows of failures
  for (const node of nodes) node.state = stateOf(node, !node.isSpout || !isPlaced);
  return { nodes, byId: new Map(nodes.map((node) => [node.id, node])), edges: edgeRates(facts, history) };
}

/** The share of time in which the busiest task of a component is busy; null: not much more than all. */
const uneven = (loads) => (loads?.is_uneven ? loads.top : null);

/** Whether a component or a stream is the plumbing of batches or of watermarks. */
export const isInternal = (name) => /^(\$|__)/.test(name);

/** What users have declared: without the plumbing. */
export const withoutInternals = ({ nodes, byId, edges }) => ({
  nodes: nodes.filter((node) => !node.isInternal), byId,
  edges: edges.filter((edge) => !isInternal(edge.stream) && !isInternal(edge.source)),
});

const isFailing = (node) => node.failing > 0.05;

/** What a component is coloured by; the worst comes first. */
function stateOf(node, marksFailures) {
  if (node.quarantined.length) return { kind: "bad", text: "quarantined" };
  if (node.stuck.length) return { kind: "bad", text: "stuck" };
  if (node.waits.length) {
    const kinds = node.waits.map((wait) => wait.kind);
    const longest = Math.max(...node.waits.map((wait) => wait.for_s));
    return !kinds.includes("doubt")
      ? { kind: "wait", text: `waits ${elapsed(longest)}` }
      : { kind: "wait", text: `in doubt ${elapsed(longest)}` };
  }
  if (marksFailures && isFailing(node)) return { kind: "bad", text: "failing" };
  return null;
}

/**
 * Edges with their rates. A counter is of all edges that leave a stream, or that enter a component: an edge that is the only unknown one of such a sum follows from it. Where none does,
 * the rate is null.
 */
export function edgeRates(facts, history) {
  const edges = facts.edges.map((edge) => ({ ...edge, rate: null }));
  const period = history.window();
  if (!period) return edges;
  const sums = [];
  const sum = (total, of) => of.length && sums.push({ total, edges: of });
  for (const [id, component] of Object.entries(facts.components)) {
    const leaving = edges.filter((edge) => edge.source === id);
    const entering = edges.filter((edge) => edge.target === id);
    if (component.kind !== "spout") sum(history.rate(id, "executed"), entering);
    const to = period.last.components[id]?.to ?? {};
    const before = period.before.components[id]?.to ?? {};
    for (const stream of new Set(leaving.map((edge) => edge.stream))) {
      const grown = Math.max((to[stream] ?? 0) - (before[stream] ?? 0), 0);
      sum(grown / period.for_s, leaving.filter((edge) => edge.stream === stream));
    }
  }
  for (let progress = true; progress;) {
    progress = false;
    for (const group of sums) {
      const open = group.edges.filter((edge) => edge.rate == null);
      if (open.length !== 1) continue;
      const known = group.edges.reduce((all, edge) => all + (edge.rate ?? 0), 0);
      open[0].rate = Math.max(group.total - known, 0);
      progress = true;
    }
  }
  return edges;
}

/** What is wrong, worst first: {kind, title, text, component, traceback}. */
export function problems(facts, derived) {
  const list = [];
  const add = (kind, title, text, component = null, traceback = "") =>
    list.push({ kind, title, text, component, traceback });
  if (facts.error) add("bad", "The topology has failed", ...split(facts.error));
  if (facts.unchanged) {
    const { command, at_s: at, why } = facts.unchanged;
    const [first, , more] = split(why);
    add("bad", `The ${command}${at == null ? "" : ` at ${timeOfDay(at)}`} did not happen`, first, null, more);
  }
  if (facts.untracked) add("bad", "An untracked record failed", ...split(facts.untracked));
  for (const alike of groupedErrors(facts.quarantined)) {
    const [{ component, task, error, traceback }] = alike;
    const who = alike.length === 1 ? `${component}[${task}] is` : `${component} (${alike.length} tasks) is`;
    add("bad", `${who} quarantined`, `${error} · tried again every 30 s at most`, component, traceback);
  }
  for (const call of facts.stuck) {
    add("bad", `${call.component}[${call.index}] is stuck`,
      `in one call for ${elapsed(call.for_s)}, at ${call.where}`, call.component);
  }
  for (const wait of groupedWaits(facts.waiting)) add("wait", wait.title, wait.text, wait.component);
  // what a component that waits has failed before is not its problem now
  for (const node of derived.nodes.filter((candidate) =>
    isFailing(candidate) && !candidate.isSpout && !candidate.waits.length)) {
    const why = facts.failures.find((failure) => failure.component === node.id); // the most frequent
    add("bad", `${node.id} fails ${rateWord(node.failing)}`,
      why ? `${why.cause}: ${firstLine(why.example.reason)}${whose(why)}` : "", node.id, why?.example.traceback);
  }
  for (const [worker, for_s] of Object.entries(facts.silent)) {
    add("wait", `Worker ${worker} is silent`, `for ${elapsed(for_s)}: it is stopped, cut off, or ` +
      "starts; it is replaced after worker_timeout_s");
  }
  for (const worker of facts.workers) {
    for (const [peer, for_s] of Object.entries(worker.links)) {
      add("wait", `Worker ${worker.worker} does not reach worker ${peer}`,
        `for ${elapsed(for_s)}; what it sends waits`);
    }
  }
  const limiting = facts.progress?.limit.component; // the page says that above
  for (const node of derived.nodes.filter((candidate) => candidate.isBottleneck && candidate.id !== limiting)) {
    add("info", `${node.id} is the bottleneck`,
      `its ${plural(node.facts.parallelism, "task")} ${node.facts.parallelism === 1 ? "was" : "were"} busy ` +
      `${Math.round(node.capacity * 100)} % of the last seconds` +
      (node.facts.queued ? `; ${count(node.facts.queued)} tuples wait for it` : ""), node.id);
  }
  return list;
}

const rateWord = (perSecond) =>
  perSecond < 1 ? "now and then" : `${count(Math.round(perSecond))} a second`;
/** Which records fail: " · all of them have customer='c-13'". */
const whose = ({ in_common: alike, looked, example }) => (alike
  ? ` · all of the ${looked} records that were compared have ${alike}`
  : example.record && ` · such as ${example.record}`);
const firstLine = (text) => text.split("\n", 1)[0];

function split(text) {
  const [first, ...rest] = text.split("\n");
  return [first, null, rest.join("\n")];
}

/** What a task does that waits, by the kind of its wait. */
export const WAITS = {
  unavailable: "has waited for a dependency",
  doubt: "has failed every input (doubt)",
  filling: "has filled its table again",
};

/** Waits or errors of the tasks of a component that are alike. */
function groupedErrors(errors) {
  const groups = new Map();
  for (const entry of errors) {
    const key = JSON.stringify([entry.component, entry.kind, entry.error]);
    groups.set(key, [...(groups.get(key) ?? []), entry]);
  }
  return [...groups.values()];
}

function groupedWaits(waiting) {
  return groupedErrors(waiting).map((waits) => {
    const [{ component, kind, error, task }] = waits;
    const who = waits.length === 1 ? `${component}[${task}]` : `${component} (${waits.length} tasks)`;
    const never = kind === "unavailable" && !waits.some((wait) => wait.reached);
    const tries = waits.reduce((sum, wait) => sum + wait.tries, 0);
    const what = WAITS[kind] ?? WAITS.unavailable;
    return {
      component,
      title: `${who} ${what} for ${elapsed(Math.max(...waits.map((wait) => wait.for_s)))}`,
      text: `${error} · ${count(tries)} ${tries === 1 ? "try" : "tries"}` +
        (never ? " · never reached so far" : ""),
    };
  });
}

/** Figures with names such as "words[0]/lag" as a table: part → name → value; and the others. */
export function figureTable(figures) {
  const rows = new Map();
  const single = [];
  for (const [name, value] of Object.entries(figures)) {
    const cut = name.lastIndexOf("/");
    if (cut < 0) single.push([name, value]);
    else {
      const part = name.slice(0, cut);
      rows.set(part, { ...rows.get(part), [name.slice(cut + 1)]: value });
    }
  }
  const columns = [...new Set([...rows.values()].flatMap((row) => Object.keys(row)))];
  return { single, rows: [...rows], columns };
}
