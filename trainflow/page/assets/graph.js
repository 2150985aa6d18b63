// Follows the edges of a state in the graph: those that lead from it and to it, with the states at their other ends.
const place = document.getElementById("workflow");
const FOLLOWED = ["follow-from", "follow-to", "follow-end"];

function follow(name) {
  place.classList.toggle("is-followed", name !== null);
  for (const element of place.querySelectorAll(FOLLOWED.map((each) => `.${each}`).join())) element.classList.remove(...FOLLOWED);
  if (name === null) return;
  const ends = new Set([name]);
  for (const arrow of place.querySelectorAll(".arrow")) {
    const { source, target } = arrow.dataset;
    if (source !== name && target !== name) continue;
    arrow.classList.add(source === name ? "follow-from" : "follow-to");
    ends.add(source).add(target);
  }
  for (const state of place.querySelectorAll(".state")) state.classList.toggle("follow-end", ends.has(state.dataset.name));
}

const named = ({ target }) => target.closest?.(".state")?.dataset.name ?? null;
place.addEventListener("pointerover", (event) => follow(named(event)));
place.addEventListener("focusin", (event) => follow(named(event)));
place.addEventListener("pointerleave", () => follow(null));
place.addEventListener("focusout", () => follow(null));
