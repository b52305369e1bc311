// Draws a topology's graph as SVG: a link for each component, rates on the edges, and a legend.

import { html, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { plural, rate, share } from "./format.js";
import { HEIGHT, layout, LETTER } from "./layout.js";

const LEAST_SCALE = 0.9; // smaller texts cannot be read: the graph scrolls instead
const NARROW = 640;

/** `href(id)`: where a component's link leads. */
export function GraphView({ derived, selected, href }) {
  const box = useRef(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => { // the first width comes before the first frame
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const ids = derived.nodes.map((node) => node.id);
  const shape = JSON.stringify([ids, derived.edges.map((edge) => [edge.source, edge.target])]);
  const isVertical = width > 0 && width < NARROW;
  const placed = useMemo(() => layout(ids, derived.edges, isVertical), [shape, isVertical]);
  const scale = Math.max(Math.min(1, width / placed.width), LEAST_SCALE);
  const at = placed.nodes.get(selected);
  useLayoutEffect(() => { // the selected component is in view
    if (!at) return;
    box.current.scrollLeft = at.x * scale - width / 2;
    box.current.scrollTop = at.y * scale - box.current.clientHeight / 2;
  }, [selected, width, placed]);
  const widest = Math.max(1, ...derived.edges.map((edge) => edge.rate ?? 0));
  return html`
    <div class="graph" ref=${box} role="region" aria-label="Graph of the topology" tabindex="0">
      ${width > 0 && html`<svg width=${placed.width * scale} height=${placed.height * scale}
        viewBox=${`0 0 ${placed.width} ${placed.height}`} role="group"
        aria-label="Components; the table below has the same numbers">
        <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"
          markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" class="arrow" /></marker></defs>
        <g aria-hidden="true">${derived.edges.map((edge, n) => html`
          <${EdgeView} key=${n} edge=${edge} drawn=${placed.edges[n]} widest=${widest} />`)}</g>
        ${derived.nodes.map((node) => html`
          <${NodeView} key=${node.id} node=${node} at=${placed.nodes.get(node.id)} size=${placed.nodeWidth}
            href=${href(node.id)} isSelected=${node.id === selected} />`)}
      </svg>`}
    </div>
    <${Legend} />`;
}

function EdgeView({ edge, drawn, widest }) {
  const weight = edge.rate ? 1.2 + 2.8 * Math.sqrt(edge.rate / widest) : 1;
  const text = edge.rate == null ? "" : rate(edge.rate);
  const width = 12 + 6.4 * text.length;
  return html`<g class=${edge.rate === 0 ? "edge still" : "edge"}>
    <path d=${drawn.path} stroke-width=${weight.toFixed(2)} marker-end="url(#arrow)">
      <title>${`${edge.source} → ${edge.target}, stream ${edge.stream}, ${edge.grouping}`}</title></path>
    ${text && html`<rect x=${drawn.label.x - width / 2} y=${drawn.label.y - 9} width=${width}
      height="18" rx="9" /><text x=${drawn.label.x} y=${drawn.label.y + 4}>${text}</text>`}
  </g>`;
}

function NodeView({ node, at, size, href, isSelected }) {
  const [x, y] = [at.x - size / 2, at.y - HEIGHT / 2];
  const mark = node.state?.text ?? (node.isBottleneck ? "bottleneck" : "");
  const kind = node.state?.kind ?? (node.isBottleneck ? "busy" : "well");
  const round = node.isSpout ? HEIGHT / 2 : 9;
  const inset = node.isSpout ? 22 : 12;
  const label = [
    node.id, node.isSpout ? "spout" : "bolt", plural(node.facts.parallelism, "task"),
    `${rate(node.rate)} a second`, `capacity ${share(node.capacity)}`,
    node.busiest != null && `its busiest task ${share(node.busiest)}`, mark,
  ].filter(Boolean).join(", ");
  const [full, words] = node.busiest == null ? [node.capacity, share(node.capacity)]
    : [node.busiest, `max ${share(node.busiest)}`];
  const track = size - 2 * inset - 8 - 7 * words.length;
  const width = 16 + 6.7 * mark.length;
  return html`<a href=${href} class=${`node ${kind}${isSelected ? " selected" : ""}`}
    aria-label=${label} aria-current=${isSelected ? "true" : null}
    transform=${`translate(${x.toFixed(1)} ${y.toFixed(1)})`}>
    <rect class="focus" x="-4" y="-4" width=${size + 8} height=${HEIGHT + 8} rx=${round + 4} />
    <rect class="body" width=${size} height=${HEIGHT} rx=${round} />
    <text class="name" x=${inset} y="24">${clip(node.id, Math.floor((size - 2 * inset) / LETTER))}<title>${node.id}</title></text>
    <text class="facts" x=${inset} y="42">${`× ${node.facts.parallelism}`}</text>
    <text class="facts end" x=${size - inset} y="42">${`${rate(node.rate)}/s`}</text>
    <rect class="track" x=${inset} y="50" width=${track} height="5" rx="2.5" />
    <rect class=${`fill ${level(full)}`} x=${inset} y="50" height="5" rx="2.5" width=${(track * full).toFixed(1)} />
    <text class="facts end" x=${size - inset} y="56">${words}</text>
    ${mark && html`<g class="mark" transform=${`translate(${size - width - 10} -10)`}>
      <rect width=${width} height="19" rx="9.5" /><text x=${width / 2} y="13.5">${mark}</text></g>`}
  </a>`;
}

function Legend() {
  return html`<ul class="legend" aria-label="Legend">
    <li><span class="key round"></span>spout</li><li><span class="key"></span>bolt</li>
    <li><span class="key bar"></span>capacity: share of the time in which the tasks are busy;
      max: that of the busiest one, if it is much busier than the others</li>
    <li><span class="dot busy"></span>bottleneck</li>
    <li><span class="dot bad"></span>failing, stuck or quarantined</li>
    <li><span class="dot wait"></span>waits for a dependency</li>
    <li>numbers on edges: tuples a second</li></ul>`;
}

/** low, middle or high, for the colour of a capacity. */
export const level = (capacity) => (capacity >= 0.8 ? "high" : capacity >= 0.5 ? "middle" : "low");

const clip = (text, length) =>
  text.length > length ? `${text.slice(0, length - 1)}…` : text;
