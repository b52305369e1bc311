// A time chart drawn by uPlot, with a readout under the pointer and a sentence for screen readers.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { rate } from "./format.js";

const HEIGHT = 150;
const FONT = "11px system-ui, sans-serif";
const COLOURS = { good: "--accent", bad: "--bad", warn: "--warn" };

/** `series`: [{label, kind, points: [{wall, value}]}], all with the same times; a value that is null
 * is not known. `unit`: after each number. Dragging shows a part of the time, a double click all. */
export function Chart({ title, series, empty, unit = "/s" }) {
  const [pointed, setPointed] = useState(null);
  const [width, setWidth] = useState(0);
  const box = useRef(null);
  const drawn = useRef(null);
  const points = series[0].points;
  const isEmpty = points.length < 2;
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(box.current);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => drawn.current?.redraw();
    scheme.addEventListener("change", redraw);
    return () => {
      observer.disconnect();
      scheme.removeEventListener("change", redraw);
      drawn.current?.destroy();
    };
  }, []);
  useEffect(() => {
    if (!width || isEmpty) return;
    const data = [points.map(({ wall }) => wall / 1e3),
      ...series.map((line) => line.points.map(({ value }) => value))];
    const plot = drawn.current;
    if (!plot) {
      const hooks = { setCursor: [(changed) => setPointed(changed.cursor.idx ?? null)] };
      drawn.current = new globalThis.uPlot({ ...options(series, width), hooks }, data, box.current);
      return;
    }
    if (plot.width !== width) plot.setSize({ width, height: HEIGHT });
    const isPart = plot.scales.x.min > plot.data[0][0] || plot.scales.x.max < plot.data[0].at(-1);
    plot.setData(data, !isPart); // a part of the time that was chosen stays
    if (isPart) plot.redraw();
  }, [points.at(-1)?.wall, points.length, width]);
  const at = Math.min(pointed ?? points.length, points.length - 1);
  const textOf = (value) => (value == null ? "–" : `${rate(value)}${unit}`);
  const spoken = series.map((line) => `${line.label} ${textOf(line.points.at(-1).value)} now, at most ` +
    textOf(Math.max(...line.points.map((point) => point.value ?? 0)))).join("; ");
  return html`<figure class="chart">
    <figcaption><h3>${title}</h3>
      <span class="readout">${pointed != null && html`<span class="quiet">${clock(points[at].wall)}</span>`}
        ${!isEmpty && series.map((line) => html`
        <span class=${`series ${line.kind}`}>${line.label} <b>${textOf(line.points[at].value)}</b></span>`)}
      </span></figcaption>
    ${isEmpty && html`<p class="quiet">${empty}</p>`}
    <div class="plot" ref=${box} role="img" aria-label=${isEmpty ? empty : `${title}: ${spoken}`}
      data-points=${points.length}></div>
  </figure>`;
}

/** What uPlot needs; colours are read when it draws, so they follow the colour scheme. */
function options(series, width) {
  const axis = { font: FONT, stroke: () => colour("--quiet"), ticks: { show: false } };
  return {
    width, height: HEIGHT, padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { y: false, sync: { key: "charts" }, drag: { x: true, y: false },
      points: { size: 6 } },
    scales: { y: { range: (plot, least, greatest) => [0, Math.max(1, 1.05 * greatest)] } },
    axes: [
      { ...axis, space: 70, size: 22, gap: 4, grid: { show: false },
        values: (plot, times) => times.map((atS) => clock(1e3 * atS)) },
      { ...axis, space: 45, size: 44, gap: 4, grid: { stroke: () => colour("--line"), width: 1 },
        values: (plot, values) => values.map(rate) },
    ],
    series: [{}, ...series.map((line) => ({ label: line.label, width: 1.8, points: { show: false },
      stroke: () => colour(COLOURS[line.kind]) }))],
  };
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const clock = (wall) => new Date(wall).toLocaleTimeString("en-GB");
