// The connection to the command that shows the page, and what a person is told of it.
const place = document.getElementById("connection");
const { start, key, port } = document.body.dataset;
const RETRY_MILLISECONDS = 2000;
export const RESTARTED = "Trainflow was started again, and this page reconnects. If it does not: open the address that the command has printed in this browser. What you see is not current.";

export const LOST = "The connection to Trainflow is lost: the command that showed this page has ended, or this machine slept. This page goes on when the command is started again on the same port. What you see is not current.";

let isRefused = false;

export function sayConnection(sentence) {
  place.textContent = isRefused ? RESTARTED : sentence;
  place.hidden = !place.textContent;
}

// `fetch` of something to read. A refusal means that the command was started again: its token is another one, and so is
// that of the forms. The page is loaded anew as soon as this browser is known there.
export async function ask(path) {
  const answer = await fetch(path);
  if (answer.status === 403 && !isRefused) {
    isRefused = true;
    sayConnection(RESTARTED);
    setTimeout(reconnect, RETRY_MILLISECONDS);
  } else if (answer.ok) reloadIfOther(answer.headers.get("x-trainflow-start"));
  return answer;
}

// Loads the page anew if the answer is of a later start of the command: the page's own forms would be refused.
export function reloadIfOther(answered) {
  if (answered && answered !== start) location.reload();
}

export const ownStart = start;

// Proves that this page came from the same person's Trainflow, without sending the key: decision 106.
async function prove() {
  const { nonce } = await (await fetch("/reconnect")).json();
  const bytes = (text) => new TextEncoder().encode(text);
  const secret = await crypto.subtle.importKey("raw", bytes(key), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const signed = new Uint8Array(await crypto.subtle.sign("HMAC", secret, bytes(`${port} ${nonce}`)));
  const proof = [...signed].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return (await fetch("/reconnect", { method: "POST", body: JSON.stringify({ nonce, proof }) })).ok;
}

async function reconnect() {
  try {
    const { ok } = await fetch("/assets/page.css", { method: "HEAD" });
    if (ok || (await prove())) return location.reload();
  } catch {
    // it has ended again; it may be started once more
  }
  setTimeout(reconnect, RETRY_MILLISECONDS);
}
