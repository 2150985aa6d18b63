// Moments in the reader's own time; the server sends them in UTC, which stays in the title.
const today = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short" });
const clock = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const day = { year: "numeric", month: "short", day: "numeric" };

export function localize(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const isToday = today.format(at) === today.format(new Date());
    element.textContent = at.toLocaleString("en-GB", isToday ? clock : { ...day, ...clock });
  }
}
