// A small time chart as SVG, with a readout under the pointer and a sentence for screen readers.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { rate } from "./format.js";

const [HEIGHT, LEFT, RIGHT, BOTTOM, TOP] = [150, 44, 8, 20, 10];

/** `series`: [{label, kind, points: [{wall, value}]}], all with the same times. */
export function Chart({ title, series, empty }) {
  const [pointed, setPointed] = useState(null);
  const [width, setWidth] = useState(0);
  const plot = useRef(null);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(plot.current);
    return () => observer.disconnect();
  }, []);
  const points = series[0]?.points ?? [];
  const values = series.flatMap((one) => one.points.map((point) => point.value));
  const top = nice(Math.max(1, ...values));
  const [start, end] = [points[0]?.wall, points.at(-1)?.wall];
  const x = (wall) => LEFT + ((wall - start) / Math.max(end - start, 1)) * (width - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const at = pointed == null ? points.length - 1 : Math.min(pointed, points.length - 1);
  const move = (event) => {
    const left = plot.current.getBoundingClientRect().left + LEFT;
    const wall = start + ((event.clientX - left) / (width - LEFT - RIGHT)) * (end - start);
    const after = points.findIndex((point) => point.wall >= wall);
    setPointed(after < 0 ? points.length - 1 : after);
  };
  return html`<figure class="chart">
    <figcaption><h3>${title}</h3>
      <span class="readout">${points.length > 1 && series.map((one) => html`
        <span class=${`series ${one.kind}`}>${one.label} <b>${rate(one.points[at].value)}/s</b></span>`)}
      </span></figcaption>
    <div class="plot" ref=${plot}>${points.length < 2 || !width ? html`<p class="quiet">${empty}</p>` : html`
    <svg width=${width} height=${HEIGHT} role="img" onPointerMove=${move}
      onPointerLeave=${() => setPointed(null)} aria-label=${spoken(title, series)}>
      ${[0, 0.5, 1].map((part) => html`<g class="scale">
        <line x1=${LEFT} x2=${width - RIGHT} y1=${y(top * part)} y2=${y(top * part)} />
        <text x=${LEFT - 6} y=${y(top * part) + 4}>${rate(top * part)}</text></g>`)}
      <g class="scale times"><text x=${LEFT} y=${HEIGHT - 5}>${clock(start)}</text>
        <text class="end" x=${width - RIGHT} y=${HEIGHT - 5}>${clock(end)}</text></g>
      ${series.map((one) => html`<g class=${`line ${one.kind}`}>
        <path class="area" d=${`${line(one.points, x, y)}V${y(0)}H${x(start)}z`} />
        <path class="stroke" d=${line(one.points, x, y)} /></g>`)}
      ${pointed != null && html`<line class="pointer" x1=${x(points[at].wall)} x2=${x(points[at].wall)}
        y1=${TOP} y2=${HEIGHT - BOTTOM} />`}
    </svg>`}</div>
  </figure>`;
}

/** A path through points; of many, the highest of each few. */
function line(points, x, y) {
  const step = Math.ceil(points.length / 300);
  let path = "";
  for (let n = 0; n < points.length; n += step) {
    const value = Math.max(...points.slice(n, n + step).map((point) => point.value));
    path += `${n ? "L" : "M"}${x(points[n].wall).toFixed(1)} ${y(value).toFixed(1)}`;
  }
  return step > 1 ? `${path}H${x(points.at(-1).wall).toFixed(1)}` : path;
}

/** A round number from `value` up. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 3, 4, 6, 8, 10].find((factor) => factor * power >= value * 0.999);
}

const clock = (wall) => new Date(wall).toLocaleTimeString("en-GB");

const spoken = (title, series) => `${title}: ` + series.map((one) =>
  `${one.label} ${rate(one.points.at(-1)?.value)} a second now, at most ` +
  rate(Math.max(...one.points.map((point) => point.value)))).join("; ");
