// A run's page: takes over what the server says has changed, and asks before it stops or resumes.
import "./copy.js";
import "./graph.js";
import { LOST, RESTARTED, ask, ownStart, reloadIfOther, sayConnection } from "./connection.js";
import { refreshCurves } from "./charts.js";
import { readLog, showLogOf } from "./log.js";
import { morph } from "./morph.js";
import { share } from "./shared.js";
import { localize } from "./times.js";

const byId = (id) => document.getElementById(id);
const { run, token, running } = byId("run").dataset;
const base = `/runs/${run}`;

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
let seen = [];
let announced = null;

async function askNews(isNew) {
  if (isNew) seen = [];
  try {
    const query = new URLSearchParams([["page", page], ...seen.map((digest) => ["seen", digest])]);
    const answer = await ask(`${base}/news?${query}`);
    if (!answer.ok) return { news: { trouble: answer.status === 403 ? RESTARTED : await answer.text() } };
    const news = await answer.json();
    ({ seen } = news);
    return { news: { ...news, start: ownStart }, wait: news.milliseconds, isLast: news.is_over };
  } catch {
    return { news: { trouble: LOST } };
  }
}

function show({ trouble = "", start, parts, announcement, curves, log_pod: pod, is_over: isOver }) {
  sayConnection(trouble);
  reloadIfOther(start);
  if (trouble) return;
  for (const [id, html] of Object.entries(parts)) if (byId(id)) morph(byId(id), html);
  if (announcement !== null && announced !== null && announcement !== announced) byId("live").textContent = announcement;
  announced = announcement ?? announced;
  showLogOf(pod);
  if (isOver) showEnd();
  else if (curves !== null) refreshCurves();
  readLog();
}

function showEnd() {
  const noCurves = byId("no-curves");
  if (noCurves) noCurves.textContent = noCurves.dataset.ended;
  refreshCurves();
  document.body.dataset.ended = "yes";
}

localize(document);
refreshCurves();
if (running === "yes") share(run, askNews, show);
