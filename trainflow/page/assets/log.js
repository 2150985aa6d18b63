// The log beside the curves: of the pod that matters, until a reader opens another one.
import { ask } from "./connection.js";

const byId = (id) => document.getElementById(id);
const base = `/runs/${byId("run").dataset.run}`;

const log = { isChosen: false, pod: null, offset: null, lines: [], count: 0, isWhole: true, timer: null, poll: null };
const SHOWN_LINES = 10000;
const GROWING_MILLISECONDS = 700;

async function openLog(pod, { isChosen } = { isChosen: true }) {
  Object.assign(log, { isChosen, pod, offset: null, lines: [], count: 0, isWhole: true });
  byId("logs").hidden = false;
  byId("split").classList.add("has-log");
  byId("log-name").textContent = pod;
  byId("log-search").value = "";
  byId("log-text").textContent = "";
  await readLog();
  if (!isChosen) return;
  byId("logs").scrollIntoView({ block: "nearest" });
  byId("log-search").focus({ preventScroll: true });
}

// Shows the log of the pod that matters now. A log that a reader has opened, or closed, stays so.
export function showLogOf(pod) {
  if (!pod || log.isChosen || pod === log.pod) return;
  openLog(pod, { isChosen: false });
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

export async function readLog() {
  if (document.hidden || !log.pod || byId("log-search").value) return;
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
  Object.assign(log, { pod: null, isChosen: true });
  byId("logs").hidden = true;
  byId("split").classList.remove("has-log");
  (document.querySelector(`button.log[data-pod="${CSS.escape(pod)}"]`) ?? byId("rank"))?.focus();
});
byId("log-search").addEventListener("input", () => {
  clearTimeout(log.timer);
  log.timer = setTimeout(searchLog, 150);
});

showLogOf(byId("logs").dataset.pod);
