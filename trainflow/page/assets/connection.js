// The connection to the command that shows the page, and what a person is told of it.
const place = document.getElementById("connection");
const RETRY_MILLISECONDS = 2000;
const RESTARTED = "Trainflow was started again, and its page has another address: open the one that the command has printed in this browser, and this page goes on. What you see is not current.";

export const LOST = "The connection to Trainflow is lost: the command that showed this page has ended, or this machine slept. What you see is not current.";

let isRefused = false;

export function sayConnection(sentence) {
  place.textContent = isRefused ? RESTARTED : sentence;
  place.hidden = !place.textContent;
}

// `fetch` of something to read. A refusal means that the command was started again: its token is another one, and so is
// that of the forms. The page is loaded anew as soon as this browser has visited the new address.
export async function ask(path) {
  const answer = await fetch(path);
  if (answer.status === 403 && !isRefused) {
    isRefused = true;
    sayConnection(RESTARTED);
    setTimeout(reloadOnceKnown, RETRY_MILLISECONDS);
  }
  return answer;
}

async function reloadOnceKnown() {
  try {
    const { ok } = await fetch("/assets/page.css", { method: "HEAD" });
    if (ok) return location.reload();
  } catch {
    // it has ended again; it may be started once more
  }
  setTimeout(reloadOnceKnown, RETRY_MILLISECONDS);
}
