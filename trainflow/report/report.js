// Reads values off the curves under the pointer, and unfolds everything for printing. The page is complete without it.
for (const plot of document.querySelectorAll(".plot")) {
  const points = JSON.parse(plot.dataset.points);
  const readout = plot.parentElement.querySelector(".readout");
  const cursor = plot.querySelector(".cursor");
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const at = (100 * (event.clientX - box.left)) / box.width;
    const nearest = points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));
    readout.textContent = nearest[2];
    cursor.style.left = nearest[0] + "%";
    cursor.style.bottom = nearest[1] + "%";
    cursor.hidden = false;
  });
  plot.addEventListener("pointerleave", () => {
    readout.textContent = "";
    cursor.hidden = true;
  });
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => (part.open = true)));
