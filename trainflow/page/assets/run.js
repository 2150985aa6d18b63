// A run's page: takes over what the server says has changed, draws the curves, and shows logs.
import { LOST, ask, sayConnection } from "./connection.js";
import { morph } from "./morph.js";
import { Plot, figure } from "./plots.js";

const byId = (id) => document.getElementById(id);
const { run, token, running } = byId("run").dataset;
const base = `/runs/${run}`;

// --- Curves

const window_ = { first: null, last: null };
const plots = new Map();
let marks = [];
let fetching = false;
let again = false;

async function refreshCurves() {
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  try {
    do {
      again = false;
      const query = new URLSearchParams({ points: Math.min(800, Math.max(300, Math.round(innerWidth / 2))), smoothing: byId("smoothing").value });
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
  if (payload.metrics.length) byId("no-curves")?.remove();
  for (const metric of payload.metrics) {
    const card = plots.get(metric.key) ?? addCard(metric);
    card.metric = metric;
    card.canvas.setAttribute("aria-label", metric.description);
    if (document.activeElement !== card.canvas) card.output.textContent = card.newest(metric);
    card.plot.setData([metric.x, metric.high, metric.low, metric.mean]);
  }
}

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
    lines: ["--accent"],
    band: true,
    sync: "run",
    onZoom: zoom,
    onCursor: (at) => (output.textContent = at === null || at === undefined ? card.newest(card.metric) : reading(card.metric, at)),
    getMarks: () => [...marks, ...card.metric.notFinite.map((step) => ({ step, kind: "odd" }))],
  });
  plots.set(metric.key, card);
  return card;
}

function reading({ x, low, high, mean }, at) {
  const value = low[at] === high[at] ? figure(low[at]) : `${figure(low[at])} – ${figure(high[at])}, mean ${figure(mean[at])}`;
  const mark = marks.find(({ step }) => Math.abs(step - x[at]) <= Math.max(1, (x.at(-1) - x[0]) / 300));
  return `step ${x[at].toLocaleString("en-US")}: ${value}${mark ? `, ${mark.label}` : ""}`;
}

function zoom(first, last) {
  Object.assign(window_, { first, last });
  byId("from").value = first ?? "";
  byId("to").value = last ?? "";
  refreshCurves();
}

byId("log-scale").addEventListener("change", () => plots.forEach(({ plot }) => plot.setLog(byId("log-scale").checked)));
byId("smoothing").addEventListener("input", refreshCurves);
byId("all-steps").addEventListener("click", () => zoom(null, null));
for (const id of ["from", "to"]) {
  byId(id).addEventListener("change", () => zoom(...["from", "to"].map((name) => (byId(name).value === "" ? null : Number(byId(name).value)))));
}

// --- Logs

const log = { pod: null, offset: null, lines: [], count: 0, isWhole: true, timer: null, poll: null };
const SHOWN_LINES = 10000;
const GROWING_MILLISECONDS = 700;

async function openLog(pod) {
  Object.assign(log, { pod, offset: null, lines: [], count: 0, isWhole: true });
  byId("logs").hidden = false;
  byId("log-name").textContent = pod;
  byId("log-search").value = "";
  byId("log-text").textContent = "";
  await readLog();
  byId("logs").scrollIntoView({ block: "nearest" });
  byId("log-search").focus({ preventScroll: true });
}

// Shows the line by that the failure of a pod is judged, with the lines around it.
async function showFirstError() {
  const { pod } = log;
  const answer = await ask(`${base}/logs/${encodeURIComponent(pod)}?first_error=yes`);
  if (!answer.ok || pod !== log.pod) return;
  const { text: wanted } = await answer.json();
  if (byId("log-search").value) {
    byId("log-search").value = "";
    await searchLog();
  }
  const at = wanted ? log.lines.findIndex((line) => line.includes(wanted)) : -1;
  if (at < 0) {
    byId("log-note").textContent = "No line that is shown here is an error that ended the program.";
    return;
  }
  byId("log-follow").checked = false;
  const mark = document.createElement("mark");
  mark.textContent = log.lines[at];
  const before = log.lines.slice(0, at).map((line) => `${line}\n`).join("");
  const after = log.lines.slice(at + 1).map((line) => `\n${line}`).join("");
  const text = byId("log-text");
  text.replaceChildren(before, mark, after);
  text.scrollTop = mark.offsetTop - text.offsetTop - text.clientHeight / 2;
}

async function readLog() {
  if (!log.pod || byId("log-search").value) return;
  const { pod, offset: asked } = log;
  const since = asked === null ? "" : `?since=${asked}`;
  const answer = await ask(`${base}/logs/${encodeURIComponent(pod)}${since}`);
  if (pod !== log.pod || byId("log-search").value || log.offset !== asked) return; // another answer was quicker
  if (!answer.ok) {
    byId("log-note").textContent = await answer.text();
    return;
  }
  const { lines, offset, isWhole, ...state } = await answer.json();
  const text = byId("log-text");
  if (log.offset !== asked) return;
  if (!log.lines.length || !lines.length || log.lines.length + lines.length > SHOWN_LINES) {
    log.lines = [...log.lines, ...lines].slice(-SHOWN_LINES);
    if (lines.length || asked === null) text.textContent = log.lines.join("\n");
  } else {
    log.lines.push(...lines);
    text.append(`\n${lines.join("\n")}`);
  }
  log.count += lines.length;
  log.isWhole &&= isWhole && log.count <= SHOWN_LINES;
  sayOfLog(state, log.isWhole ? "" : `The last ${log.lines.length.toLocaleString("en-US")} lines; search looks at all of them.`);
  askAgain(state, readLog);
  log.offset = offset;
  if (lines.length && byId("log-follow").checked) text.scrollTop = text.scrollHeight;
}

// What is to be known of the lines, beside what was counted.
function sayOfLog({ note, isBehind }, counted) {
  const said = [counted, note, isBehind ? "The log is being read …" : ""].filter(Boolean).join(" ");
  if (byId("log-note").textContent !== said) byId("log-note").textContent = said;
}

// A log that is fetched for this page grows without the run's own news.
function askAgain({ isGrowing }, ask) {
  clearTimeout(log.poll);
  if (isGrowing && log.pod) log.poll = setTimeout(ask, GROWING_MILLISECONDS);
}

async function searchLog() {
  const wanted = byId("log-search").value;
  if (!wanted) {
    Object.assign(log, { offset: null, lines: [], count: 0, isWhole: true });
    await readLog();
    return;
  }
  const answer = await ask(`${base}/logs/${encodeURIComponent(log.pod)}?search=${encodeURIComponent(wanted)}`);
  if (!answer.ok || wanted !== byId("log-search").value) return;
  const { found, total, ...state } = await answer.json();
  const counted = `${total.toLocaleString("en-US")} ${total === 1 ? "line" : "lines"} found${total > found.length ? `, the last ${found.length.toLocaleString("en-US")} are shown` : ""}.`;
  sayOfLog(state, counted);
  askAgain(state, searchLog);
  const text = byId("log-text");
  text.replaceChildren(...found.flatMap(([number, line]) => [`${String(number).padStart(7)}  `, ...marked(line, wanted), "\n"]));
}

function* marked(line, wanted) {
  const at = line.toLowerCase().indexOf(wanted.toLowerCase());
  if (at < 0) {
    yield line;
    return;
  }
  const mark = document.createElement("mark");
  mark.textContent = line.slice(at, at + wanted.length);
  yield line.slice(0, at);
  yield mark;
  yield line.slice(at + wanted.length);
}

for (const id of ["pods", "notices"]) {
  byId(id).addEventListener("click", async (event) => {
    const button = event.target.closest("button.log");
    if (!button) return;
    await openLog(button.dataset.pod);
    if (button.dataset.jump) await showFirstError();
  });
}
byId("log-first-error").addEventListener("click", showFirstError);
byId("rank-form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  openLog(`rank ${Number(byId("rank").value)}`);
});
byId("log-close").addEventListener("click", () => {
  const { pod } = log;
  log.pod = null;
  byId("logs").hidden = true;
  (document.querySelector(`button.log[data-pod="${CSS.escape(pod)}"]`) ?? byId("rank"))?.focus();
});
byId("log-search").addEventListener("input", () => {
  clearTimeout(log.timer);
  log.timer = setTimeout(searchLog, 150);
});

// --- Stopping and resuming

byId("head").addEventListener("click", ({ target }) => {
  if (target.id === "stop" || target.id === "resume") byId(`${target.id}-dialog`).showModal();
});

// A button of a dialog that changes something: says that it waits, and what was refused.
function onConfirmed(action, { waiting, refused, done }) {
  const [button, said] = [byId(`${action}-yes`), byId(`${action}-answer`)];
  button.addEventListener("click", async () => {
    button.disabled = true;
    said.textContent = waiting;
    try {
      const answer = await fetch(`${base}/${action}`, { method: "POST", headers: { "x-trainflow-token": token } });
      if (!answer.ok) throw new Error(await answer.text());
      await done(answer);
      said.textContent = "";
      byId(`${action}-dialog`).close();
    } catch (error) {
      said.textContent = `${refused}: ${error.message}`;
    } finally {
      button.disabled = false;
    }
  });
}

onConfirmed("stop", {
  waiting: "Stopping; this takes as long as the clean-up …",
  refused: "It was not stopped",
  done: () => {},
});
onConfirmed("resume", {
  waiting: "Starting the run …",
  refused: "It was not resumed",
  done: async (answer) => location.assign(`/runs/${encodeURIComponent((await answer.json()).run_id)}`),
});

// --- What changes

// Short polls and no stream: a browser opens six connections to a host, and each open page would keep one for itself.
const page = Math.random().toString(36).slice(2);
const RETRY_MILLISECONDS = 2000;
let seen = [];
let announced = null;

function show({ parts, announcement, curves }) {
  for (const [id, html] of Object.entries(parts)) morph(byId(id), html);
  if (announcement !== null && announced !== null && announcement !== announced) byId("live").textContent = announcement;
  announced = announcement ?? announced;
  if (curves !== null) refreshCurves();
  readLog();
}

function showEnd() {
  const noCurves = byId("no-curves");
  if (noCurves) noCurves.textContent = noCurves.dataset.ended;
  refreshCurves();
  readLog();
  document.body.dataset.ended = "yes";
}

async function poll() {
  let wait = RETRY_MILLISECONDS;
  try {
    const query = new URLSearchParams([["page", page], ...seen.map((digest) => ["seen", digest])]);
    const answer = await ask(`${base}/news?${query}`);
    if (answer.ok) {
      const news = await answer.json();
      sayConnection("");
      show(news);
      if (news.is_over) return showEnd();
      ({ seen, milliseconds: wait } = news);
    } else sayConnection(await answer.text());
  } catch {
    sayConnection(LOST);
  }
  setTimeout(poll, wait);
}

refreshCurves();
if (running === "yes") poll();
