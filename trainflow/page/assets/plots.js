// Curves with uPlot: a faint band from the lowest to the highest value of each bucket, a line for the smoothed mean.
/* global uPlot */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function figure(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(3).replace(/\.?0+e/, "e");
  return value.toLocaleString("en-US", { maximumSignificantDigits: size >= 1000 ? 8 : 5 });
}

// A length of time as a clock shows it: `0:42`, `1:02:03`.
export function clock(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const two = (value) => String(value).padStart(2, "0");
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800];
const whole = (split) => (Number.isInteger(split) ? split.toLocaleString("en-US", { notation: Math.abs(split) >= 1e6 ? "compact" : "standard" }) : "");

// The range of the values with a margin, without one below zero where no value is: a rate or a time is never negative.
function range(_, low, high) {
  if (low === null) return [0, 1];
  const [from, to] = uPlot.rangeNum(low, high, 0.1, true);
  return [low >= 0 ? Math.max(0, from) : from, to];
}

const positive = (values, isLog) => (isLog ? values.map((value) => (value > 0 ? value : null)) : values);

// Vertical lines at the steps of restarts, checkpoints and values that are not finite.
function marks(draw) {
  return {
    hooks: {
      draw: (plot) => {
        const { ctx, bbox } = plot;
        ctx.save();
        ctx.lineWidth = devicePixelRatio;
        for (const { at, kind } of draw()) {
          const x = Math.round(plot.valToPos(at, "x", true));
          if (x < bbox.left || x > bbox.left + bbox.width) continue;
          ctx.strokeStyle = colour(kind === "odd" ? "--warn" : `--mark-${kind}`);
          ctx.setLineDash(kind === "checkpoint" ? [2 * devicePixelRatio, 3 * devicePixelRatio] : []);
          ctx.beginPath();
          ctx.moveTo(x, bbox.top);
          ctx.lineTo(x, bbox.top + bbox.height);
          ctx.stroke();
        }
        ctx.restore();
      },
    },
  };
}

export class Plot {
  // onZoom(first, last) is called when a person chooses a part with the pointer, onZoom(null, null) after a double click.
  constructor(element, { isLog, lines, band, sync, onZoom, onCursor, getMarks = () => [] }) {
    Object.assign(this, { element, isLog, lines, band, sync, onZoom, onCursor, getMarks });
    this.data = null;
    new ResizeObserver(() => this.resize()).observe(element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
  }

  size() {
    return { width: Math.max(120, this.element.clientWidth), height: Math.max(120, this.element.clientHeight) };
  }

  resize() {
    if (this.plot && this.plot.width !== this.size().width) this.plot.setSize(this.size());
  }

  setLog(isLog) {
    this.isLog = isLog;
    this.rebuild();
  }

  setData(data, axis = "step") {
    this.data = data;
    const isOther = axis !== this.axis;
    this.axis = axis;
    if (this.plot && !isOther) this.plot.setData(this.shown());
    else this.rebuild();
  }

  shown() {
    return [this.data[0], ...this.data.slice(1).map((values) => positive(values, this.isLog))];
  }

  rebuild() {
    if (!this.data) return;
    this.plot?.destroy();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const line = (name) => ({ stroke: colour(name), width: name.endsWith("-raw") ? 1 : 1.8, spanGaps: true, points: name.endsWith("-raw") ? { show: false } : { size: 5 } });
    const edge = { stroke: colour("--accent-faint"), width: 1, points: { show: false }, spanGaps: true };
    const options = {
      ...this.size(),
      legend: { show: false },
      scales: { x: { time: false }, y: this.isLog ? { distr: 3 } : { range } },
      axes: [
        { ...axis, size: 30, ...(this.axis === "time" ? { incrs: TIME_STEPS } : {}), values: (_, splits) => splits.map(this.axis === "time" ? clock : whole) },
        { ...axis, size: 62, values: (_, splits) => splits.map((split) => (split === null ? "" : figure(split))) },
      ],
      series: [{}, ...(this.band ? [edge, edge] : []), ...this.lines.map(line)],
      bands: this.band ? [{ series: [2, 1], fill: colour("--accent-faint") }] : [],
      cursor: { sync: this.sync ? { key: this.sync, setSeries: false } : undefined, drag: { x: true, y: false, setScale: false }, focus: { prox: -1 } },
      plugins: [marks(this.getMarks)],
      hooks: {
        setSelect: [
          (plot) => {
            if (plot.select.width < 4) return;
            const [first, last] = [plot.select.left, plot.select.left + plot.select.width].map((at) => plot.posToVal(at, "x"));
            plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
            this.onZoom(first, last);
          },
        ],
        setCursor: [(plot) => this.onCursor?.(plot.cursor.idx)],
      },
    };
    this.plot = new uPlot(options, this.shown(), this.element);
    this.plot.over.addEventListener("dblclick", () => this.onZoom(null, null));
  }
}
