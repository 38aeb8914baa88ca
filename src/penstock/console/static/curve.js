// A curve of the last hour. Its figures are in the legend as text, for who does not see the picture.
import UPlot from "./libraries/uplot.js";
import { html, useEffect, useRef } from "./html.js";

const HEIGHT = 190;
const COLOURS = 5;
// A broker that began just now has a curve of some minutes all the same.
const SHORTEST_S = 600;
const colourClass = (index) => `curve-${(index % COLOURS) + 1}`;

function clock(seconds) {
  const at = new Date(seconds * 1000);
  return [at.getHours(), at.getMinutes()].map((one) => String(one).padStart(2, "0")).join(":");
}

function colourOf(element, name) {
  const probe = element.appendChild(document.createElement("i"));
  probe.className = name;
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

function optionsOf(element, seconds, series, write) {
  const axis = { stroke: colourOf(element, "axis-colour"), grid: { stroke: colourOf(element, "grid-colour"), width: 1 }, ticks: { show: false } };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { range: () => [Math.min(seconds[0], seconds.at(-1) - SHORTEST_S), seconds.at(-1)] }, y: { range: (_plot, _low, high) => [0, Math.max(4, (high ?? 0) * 1.1)] } },
    axes: [{ ...axis, space: 70, values: (_plot, seconds) => seconds.map(clock) }, { ...axis, size: 64, values: (_plot, values) => values.map(write) }],
    series: [{}, ...series.map((_one, index) => ({ stroke: colourOf(element, colourClass(index)), width: 2, points: { show: false } }))],
  };
}

/** `series` are `{name, values}`, one value for each of `times`; `write` makes text of a value. */
export function Curve({ title, times, series, write }) {
  const place = useRef(null);
  const names = series.map((one) => one.name).join("\n");
  useEffect(() => {
    const element = place.current;
    const seconds = times.map((at) => new Date(at).valueOf() / 1000);
    const plot = new UPlot(optionsOf(element, seconds, series, write), [seconds, ...series.map((one) => one.values)], element);
    const resizing = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    resizing.observe(element);
    return () => {
      resizing.disconnect();
      plot.destroy();
    };
  }, [times.at(-1), times.length, names, document.documentElement.dataset.theme]);
  const last = (values) => values.findLast((one) => one !== null && one !== undefined);
  return html`<figure class="curve" aria-label=${title}>
    <div class="canvas" ref=${place} aria-hidden="true"></div>
    <figcaption class="legend">${series.map((one, index) => html`
      <span><i class=${`swatch ${colourClass(index)}`}></i>${one.name} <b>${write(last(one.values))}</b></span>`)}</figcaption>
  </figure>`;
}
