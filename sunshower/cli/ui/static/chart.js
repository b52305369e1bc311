// A small time chart as SVG, with a readout under the pointer and a sentence for screen readers.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { rate } from "./format.js";

const [HEIGHT, LEFT, RIGHT, BOTTOM, TOP] = [150, 44, 8, 20, 10];

/** `series`: [{label, kind, points: [{wall, value}]}], all with the same times; a value that is null
 * is not known. `unit`: after each number. */
export function Chart({ title, series, empty, unit = "/s" }) {
  const [pointed, setPointed] = useState(null);
  const [width, setWidth] = useState(0);
  const plot = useRef(null);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(plot.current);
    return () => observer.disconnect();
  }, []);
  const points = series[0].points;
  const top = nice(Math.max(1, ...series.flatMap((one) => one.points.map((point) => point.value ?? 0))));
  const [start, end] = [points[0].wall, points.at(-1).wall];
  const x = (wall) => LEFT + ((wall - start) / Math.max(end - start, 1)) * (width - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const at = Math.min(pointed ?? points.length, points.length - 1);
  const move = (event) => {
    const left = plot.current.getBoundingClientRect().left + LEFT;
    const wall = start + ((event.clientX - left) / (width - LEFT - RIGHT)) * (end - start);
    const after = points.findIndex((point) => point.wall >= wall);
    setPointed(after < 0 ? points.length - 1 : after);
  };
  const said = (value) => (value == null ? "–" : `${rate(value)}${unit}`);
  const spoken = series.map((one) => `${one.label} ${said(one.points.at(-1).value)} now, at most ` +
    said(Math.max(...one.points.map((point) => point.value ?? 0)))).join("; ");
  return html`<figure class="chart">
    <figcaption><h3>${title}</h3>
      <span class="readout">${pointed != null && html`<span class="quiet">${clock(points[at].wall)}</span>`}
        ${points.length > 1 && series.map((one) => html`
        <span class=${`series ${one.kind}`}>${one.label} <b>${said(one.points[at].value)}</b></span>`)}
      </span></figcaption>
    <div class="plot" ref=${plot}>${points.length < 2 || !width ? html`<p class="quiet">${empty}</p>` : html`
    <svg width=${width} height=${HEIGHT} role="img" onPointerMove=${move}
      onPointerLeave=${() => setPointed(null)} aria-label=${`${title}: ${spoken}`}>
      ${[0, 0.5, 1].map((part) => html`<g class="scale">
        <line x1=${LEFT} x2=${width - RIGHT} y1=${y(top * part)} y2=${y(top * part)} />
        <text x=${LEFT - 6} y=${y(top * part) + 4}>${rate(top * part)}</text></g>`)}
      <g class="scale times"><text x=${LEFT} y=${HEIGHT - 5}>${clock(start)}</text>
        <text class="end" x=${width - RIGHT} y=${HEIGHT - 5}>${clock(end)}</text></g>
      ${series.map((one) => html`<g class=${`line ${one.kind}`}>
        <path class="stroke" d=${line(one.points, x, y)} /></g>`)}
      ${pointed != null && html`<line class="pointer" x1=${x(points[at].wall)} x2=${x(points[at].wall)}
        y1=${TOP} y2=${HEIGHT - BOTTOM} />`}
    </svg>`}</div>
  </figure>`;
}

/** A path through the known points. */
const line = (points, x, y) => points.map(({ wall, value }, n) => (value == null ? ""
  : `${points[n - 1]?.value == null ? "M" : "L"}${x(wall).toFixed(1)} ${y(value).toFixed(1)}`)).join("");

/** A round number from `value` up. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 3, 4, 6, 8, 10].find((factor) => factor * power >= value * 0.999);
}

const clock = (wall) => new Date(wall).toLocaleTimeString("en-GB");
