// Draws the graph of a declared topology in a notebook: `notebooks.py` inlines this file.

import { HEIGHT, layout, LETTER } from "./layout.js";

/** Replaces what is in `box` by the graph. `given`: its nodes and edges. */
export function drawGraph(box, given) {
  if (!box) return; // the text remains
  const ids = given.nodes.map((node) => node.id);
  const placed = layout(ids, given.edges, false);
  const svg = add(null, "svg", {
    width: placed.width, height: placed.height, viewBox: `0 0 ${placed.width} ${placed.height}`,
    role: "img", "aria-label": "Graph of the topology", fill: "none", stroke: "#6b7684",
    "font-family": "system-ui, sans-serif", "font-size": 13, style: "max-width: 100%",
  });
  for (const { path } of placed.edges) {
    const [x, y] = path.match(/[-\d.]+/g).slice(-2).map(Number);
    add(svg, "path", { d: path });
    add(svg, "path", { d: `M${x - 7} ${y - 4}L${x} ${y}L${x - 7} ${y + 4}z`, fill: "#6b7684" });
  }
  for (const node of given.nodes) {
    const { x, y } = placed.nodes.get(node.id);
    const size = placed.nodeWidth;
    add(svg, "rect", {
      x: x - size / 2, y: y - HEIGHT / 2, width: size, height: HEIGHT,
      rx: node.isSpout ? HEIGHT / 2 : 9, fill: node.isSpout ? "#e6edfb" : "#ffffff",
    });
    const longest = Math.floor((size - 24) / LETTER);
    const name = node.id.length > longest ? `${node.id.slice(0, longest - 1)}…` : node.id;
    write(svg, x, y - 3, name, "#181c22", 600);
    write(svg, x, y + 15, node.facts, "#58616e", 400);
  }
  box.replaceChildren(svg);
}

function write(svg, x, y, text, fill, weight) {
  add(svg, "text", { x, y, fill, stroke: "none", "text-anchor": "middle", "font-weight": weight })
    .textContent = text;
}

function add(parent, name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent?.append(element);
  return element;
}
