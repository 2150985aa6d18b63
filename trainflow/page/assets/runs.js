// The list of runs: filter, choice for a comparison, and new lines as they come.
import "./copy.js";
import { LOST, RESTARTED, ask, ownStart, reloadIfOther, sayConnection } from "./connection.js";
import { morph } from "./morph.js";
import { share } from "./shared.js";
import { localize } from "./times.js";

const byId = (id) => document.getElementById(id);
const SECONDS = 3;
const most = Number(byId("compare").dataset.max);

function filter() {
  const name = byId("filter-name").value.trim().toLowerCase();
  const status = byId("filter-status").value;
  const rows = [...document.querySelectorAll("tr[data-name]")];
  for (const row of rows) {
    row.hidden = !row.dataset.name.toLowerCase().includes(name) || (status !== "" && row.dataset.status !== status);
  }
  if (byId("none-left")) byId("none-left").hidden = rows.some((row) => !row.hidden);
}

function choose() {
  const chosen = document.querySelectorAll("input[name=run]:checked").length;
  byId("compare-button").disabled = chosen < 2 || chosen > most;
  byId("compare-button").textContent = chosen > 1 ? `Compare ${chosen} runs` : "Compare";
  byId("compare-hint").textContent = chosen > most ? `No more than ${most} runs fit on one plot.` : `Choose two to ${most} runs to compare them.`;
}

async function askList() {
  try {
    const answer = await ask("/list");
    const html = await answer.text();
    if (!answer.ok) return { news: { trouble: answer.status === 403 ? RESTARTED : html } };
    return { news: { html, start: ownStart }, wait: SECONDS * 1000 };
  } catch {
    return { news: { trouble: LOST } };
  }
}

function show({ trouble = "", html, start }) {
  sayConnection(trouble);
  reloadIfOther(start);
  if (trouble) return;
  const chosen = new Set([...document.querySelectorAll("input[name=run]:checked")].map(({ value }) => value));
  morph(byId("list"), html);
  for (const box of document.querySelectorAll("input[name=run]")) box.checked = chosen.has(box.value);
  filter();
  choose();
}

byId("filter-name").addEventListener("input", filter);
byId("filter-status").addEventListener("change", filter);
byId("compare").addEventListener("change", choose);
byId("filter-name").addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault());
localize(document);
filter();
choose();
share("list", askList, show);
