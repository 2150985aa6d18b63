// Several runs on one plot.
/* global uPlot */
import { LOST, ask, sayConnection } from "./connection.js";
import { Plot } from "./plots.js";

const byId = (id) => document.getElementById(id);
const { runs } = byId("plot").dataset;
const window_ = { first: null, last: null };
let plot = null;

async function refresh() {
  const query = new URLSearchParams({ metric: byId("metric").value, points: 800, smoothing: byId("smoothing").value, axis: byId("axis").value });
  if (window_.first !== null) query.set("from", window_.first);
  if (window_.last !== null) query.set("to", window_.last);
  let answer;
  try {
    answer = await ask(`/compare/curves?${runs}&${query}`);
  } catch {
    sayConnection(LOST);
    return;
  }
  if (!answer.ok) return;
  sayConnection("");
  const { curves } = await answer.json();
  const tables = curves.map(({ metric }) => [metric?.at ?? metric?.x ?? [], metric?.raw ?? metric?.mean ?? [], metric?.mean ?? []]);
  byId("plot").setAttribute("aria-label", curves.map(({ run, metric }) => `${run}: ${metric ? metric.description : "has no such metric."}`).join(" "));
  plot ??= new Plot(byId("plot"), {
    isLog: byId("log-scale").checked,
    lines: curves.flatMap((_, place) => [`--run-${place}-raw`, `--run-${place}`]),
    band: false,
    onZoom: (first, last) => {
      Object.assign(window_, { first: first === null ? null : Math.round(first), last: last === null ? null : Math.round(last) });
      refresh();
    },
  });
  plot.setData(uPlot.join(tables), byId("axis").value);
  byId("plot").dataset.drawn = Number(byId("plot").dataset.drawn || 0) + 1;
}

for (const id of ["metric", "axis"]) byId(id).addEventListener("change", refresh);
byId("smoothing").addEventListener("input", refresh);
byId("log-scale").addEventListener("change", () => plot?.setLog(byId("log-scale").checked));
byId("all-steps").addEventListener("click", () => {
  Object.assign(window_, { first: null, last: null });
  refresh();
});
refresh();
