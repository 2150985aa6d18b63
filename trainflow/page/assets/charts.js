// The curves of a run: by step, time, or a count that its program logs; a part of them; their marks.
import { LOST, ask, sayConnection } from "./connection.js";
import { Plot, clock, figure } from "./plots.js";

const byId = (id) => document.getElementById(id);
const base = `/runs/${byId("run").dataset.run}`;

const window_ = { first: null, last: null };
const plots = new Map();
let marks = [];
let fetching = false;
let again = false;
let isStale = false; // a hidden tab draws nothing

export async function refreshCurves() {
  if (document.hidden) {
    isStale = true;
    return;
  }
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  try {
    do {
      again = false;
      const query = new URLSearchParams({ points: Math.min(800, Math.max(300, Math.round(innerWidth / 2))), smoothing: byId("smoothing").value, axis: byId("axis").value });
      if (window_.first !== null) query.set("from", window_.first);
      if (window_.last !== null) query.set("to", window_.last);
      const began = performance.now();
      const answer = await ask(`${base}/curves?${query}`);
      if (answer.ok) draw(await answer.json());
      byId("plots").dataset.milliseconds = (performance.now() - began).toFixed(1);
      byId("plots").dataset.drawn = Number(byId("plots").dataset.drawn || 0) + 1;
    } while (again);
  } catch {
    sayConnection(document.body.dataset.ended ? "The run has ended, and with it the command that showed this page. To see it again: trainflow ui" : LOST);
  } finally {
    fetching = false;
  }
}

function draw(payload) {
  marks = payload.marks;
  offer(payload.axes);
  if (payload.metrics.length) byId("no-plots")?.remove();
  for (const metric of payload.metrics) {
    const card = plots.get(metric.key) ?? addCard(metric);
    card.metric = metric;
    card.canvas.setAttribute("aria-label", metric.description);
    if (document.activeElement !== card.canvas) card.output.textContent = card.newest(metric);
    card.plot.setData(withOddEnd(metric, [metric.at ?? metric.x, metric.high, metric.low, metric.raw ?? metric.mean, metric.mean]), byId("axis").value);
  }
}

// A curve that ends in values that are not finite reaches to the last of them.
function withOddEnd({ x, at, notFinite }, [places, ...lines]) {
  const last = notFinite.at(-1);
  if (at || last === undefined || last <= (x.at(-1) ?? -1)) return [places, ...lines];
  return [[...places, last], ...lines.map((values) => [...values, null])];
}

// The counts, such as tokens, that this run has logged.
function offer(axes) {
  const known = new Set([...byId("axis").options].map(({ value }) => value));
  for (const { key, title } of axes) if (!known.has(key)) byId("axis").append(new Option(title, key));
}

// The place of a step on the present axis, and the step at a place of it: between two points in proportion.
function between(value, from, to) {
  if (!from.length) return value;
  let low = 0;
  let high = from.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle] <= value) low = middle;
    else high = middle;
  }
  if (from[high] === from[low]) return to[low];
  return to[low] + ((value - from[low]) / (from[high] - from[low])) * (to[high] - to[low]);
}
const placeOf = ({ x, at }, step) => (at ? between(step, x, at) : step);
const stepAt = ({ x, at }, place) => Math.round(at ? between(place, at, x) : place);

function addCard(metric) {
  const element = document.createElement("figure");
  element.className = "card plot-card";
  element.dataset.metric = metric.key;
  const caption = document.createElement("figcaption");
  const title = document.createElement("h3");
  title.textContent = metric.title;
  const unit = document.createElement("small");
  unit.textContent = metric.unit ? ` ${metric.unit}` : "";
  title.append(unit);
  const output = document.createElement("output");
  caption.append(title, output);
  const canvas = document.createElement("div");
  canvas.className = "canvas";
  canvas.setAttribute("role", "img");
  element.append(caption, canvas);
  byId("plots").append(element);
  const card = { output, canvas, metric };
  card.newest = ({ x, newest: [step, value] }) => (x.length ? `${figure(value)} at step ${step.toLocaleString("en-US")}` : "nothing in these steps");
  card.plot = new Plot(canvas, {
    isLog: byId("log-scale").checked,
    lines: ["--accent-raw", "--accent"],
    band: true,
    sync: "run",
    onZoom: (first, last) => (first === null ? zoom(null, null) : zoom(stepAt(card.metric, first), stepAt(card.metric, last))),
    onCursor: (at) => (output.textContent = at === null || at === undefined ? card.newest(card.metric) : reading(card.metric, at)),
    getMarks: () => [...marks, ...card.metric.notFinite.map((step) => ({ step, kind: "odd" }))].map((mark) => ({ ...mark, at: placeOf(card.metric, mark.step) })),
  });
  plots.set(metric.key, card);
  return card;
}

function reading({ x, at: places, low, high, mean }, at) {
  const smoothed = figure(mean[at]) === figure(low[at]) ? "" : `, mean ${figure(mean[at])}`;
  const value = low[at] === high[at] ? `${figure(low[at])}${smoothed}` : `${figure(low[at])} – ${figure(high[at])}${smoothed}`;
  const axis = byId("axis").value;
  const where = places ? ` (${axis === "time" ? clock(places[at]) : `${figure(places[at])} ${axis}`})` : "";
  const mark = marks.find(({ step }) => Math.abs(step - x[at]) <= Math.max(1, (x.at(-1) - x[0]) / 300));
  return `step ${x[at].toLocaleString("en-US")}${where}: ${value}${mark ? `, ${mark.label}` : ""}`;
}

function zoom(first, last) {
  Object.assign(window_, { first, last });
  byId("from").value = first ?? "";
  byId("to").value = last ?? "";
  refreshCurves();
}

byId("log-scale").addEventListener("change", () => plots.forEach(({ plot }) => plot.setLog(byId("log-scale").checked)));
byId("smoothing").addEventListener("input", refreshCurves);
byId("axis").addEventListener("change", refreshCurves);
document.addEventListener("visibilitychange", () => {
  if (document.hidden || !isStale) return;
  isStale = false;
  refreshCurves();
});
byId("all-steps").addEventListener("click", () => zoom(null, null));
for (const id of ["from", "to"]) {
  byId(id).addEventListener("change", () => zoom(...["from", "to"].map((name) => (byId(name).value === "" ? null : Number(byId(name).value)))));
}
