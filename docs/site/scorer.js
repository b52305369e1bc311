/* The order of what a search finds: headings that are what was searched, other pages, guarantees and
   guides from other systems, the Python reference, records of the project. Sphinx calls `score` for
   each result, and adds the other numbers before. */
var Scorer = {
  score: ([page, , , , score, , kind]) =>
    score +
    (kind === "title" ? 10 : 0) -
    (/FROM_|ARCHITECTURE|GUARANTEES/.test(page) ? 5 : 0) -
    (/^docs\/api\//.test(page) ? 15 : 0) -
    (/^CHANGELOG|^benchmarks|decisions|ORIGINS|FIDELITY|PERFORMANCE|RELIABILITY/.test(page) ? 25 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 5, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 30,
  partialTitle: 15,
  term: 5,
  partialTerm: 2,
};
