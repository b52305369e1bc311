// Places the nodes and edges of a graph with dagre, and draws edges as smooth paths.

import { Graph, layout as place } from "./vendor/dagre.js";

export const HEIGHT = 66;
export const LETTER = 8.2; // the width of one in the name of a component
const WIDEST = 260;

/** Positions: {width, height, nodeWidth, nodes: Map id → {x, y}, edges: [{path, label: {x, y}}]}. */
export function layout(ids, edges, isVertical) {
  const longest = Math.max(0, ...ids.map((id) => id.length)) * LETTER + 46;
  const nodeWidth = Math.min(Math.max(isVertical ? 142 : 170, longest), WIDEST);
  const graph = new Graph({ multigraph: true });
  graph.setGraph({
    rankdir: isVertical ? "TB" : "LR", nodesep: isVertical ? 16 : 26,
    ranksep: isVertical ? 40 : 48, marginx: 14, marginy: 16,
    ranker: "tight-tree", // 50 components take 48 ms; by dagre's default 88 ms, as a rule the same
  });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const id of ids) graph.setNode(`n:${id}`, { width: nodeWidth, height: HEIGHT });
  edges.forEach((edge, number) => graph.setEdge(
    `n:${edge.source}`, `n:${edge.target}`, { width: 46, height: 14, labelpos: "c" }, `${number}`));
  place(graph);
  const nodes = new Map(ids.map((id) => [id, graph.node(`n:${id}`)]));
  const drawn = edges.map((edge, number) => {
    const line = graph.edge(`n:${edge.source}`, `n:${edge.target}`, `${number}`);
    return { path: smooth(line.points), label: { x: line.x, y: line.y } };
  });
  const { width, height } = graph.graph();
  return { width, height, nodeWidth, nodes, edges: drawn };
}

function smooth(points) {
  const at = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const middle = (a, b) => ({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });
  let path = `M${at(points[0])}`;
  for (let n = 1; n < points.length - 1; n += 1) {
    const end = n === points.length - 2 ? points[n + 1] : middle(points[n], points[n + 1]);
    path += `Q${at(points[n])} ${at(end)}`;
  }
  return points.length === 2 ? `${path}L${at(points[1])}` : path;
}
