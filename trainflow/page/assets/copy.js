// Buttons that copy a text, such as the run's id.
const SHOWN_MILLISECONDS = 1500;

document.addEventListener("click", async ({ target }) => {
  const button = target.closest?.("button.copy");
  if (!button) return;
  let said = "Copied";
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
  } catch {
    said = "Not copied";
  }
  button.textContent = said;
  document.getElementById("live").textContent = `${said}: ${button.dataset.copy}`;
  setTimeout(() => (button.textContent = "Copy"), SHOWN_MILLISECONDS);
});
