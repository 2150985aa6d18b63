// One stream of news for all tabs of a browser: one tab asks, and the others hear what it was told.
//
// The lock's holder asks. A tab that a person looks at takes the lock, because a browser slows down hidden ones; when a
// tab is closed, its lock goes to the next one that waits.
const RETRY_MILLISECONDS = 2000;

// Asks again and again until `ask` answers that it was the last time.
//   name: tabs with the same name share the answers
//   ask(isNew): resolves to {news, wait, isLast}; `isNew` is true if another tab has to hear everything
//   onNews(news): called in every tab
export function share(name, ask, onNews) {
  const channel = new BroadcastChannel(`trainflow ${name}`);
  let turn = 0;
  let isOver = false;
  let isNew = true;

  async function lead() {
    const mine = ++turn;
    isNew = true;
    while (mine === turn && !isOver) {
      const told = isNew;
      isNew = false;
      const { news, wait, isLast } = await ask(told);
      if (news !== undefined && mine === turn) {
        channel.postMessage({ news, isLast });
        hear({ news, isLast });
      }
      if (!isOver) await new Promise((resolve) => setTimeout(resolve, wait ?? RETRY_MILLISECONDS));
    }
  }

  function hear({ news, isLast, hasCome }) {
    if (hasCome) {
      isNew = true;
      return;
    }
    isOver ||= Boolean(isLast);
    onNews(news);
  }

  function stand(steal) {
    navigator.locks.request(`trainflow ${name}`, { steal }, lead).catch(() => {
      turn += 1; // another tab has taken the lock
      if (!isOver) stand(false);
    });
  }

  channel.addEventListener("message", ({ data }) => hear(data));
  channel.postMessage({ hasCome: true });
  if (navigator.locks) {
    stand(!document.hidden);
    document.addEventListener("visibilitychange", () => !document.hidden && !isOver && stand(true));
  } else lead();
}
