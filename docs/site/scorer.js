/* The order of what a search finds: pages about a subject, then its Python reference, then records of
   the project. Sphinx calls `score` for each result, and adds the other numbers before. */
var Scorer = {
  score: ([page, , , , score]) =>
    score -
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
