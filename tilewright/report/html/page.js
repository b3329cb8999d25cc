"use strict";
// Tables sort by the column whose head is pressed; what has a data-tip shows it.
for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => compare(a.cells[column], b.cells[column], down ? -1 : 1));
      table.tBodies[0].append(...rows);
    });
  });
}

// Numbers before words; what has no value is last either way.
function compare(a, b, sign) {
  const [u, v] = [a.dataset.v, b.dataset.v];
  if (u === undefined || v === undefined) {
    if (u !== v) return u === undefined ? 1 : -1;
    if ((a.textContent === "–") !== (b.textContent === "–")) return a.textContent === "–" ? 1 : -1;
    return sign * a.textContent.localeCompare(b.textContent, undefined, { numeric: true });
  }
  return sign * (Number(u) - Number(v));
}

const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);
const show = (event) => {
  const target = event.target.closest("[data-tip]");
  tip.hidden = !target;
  if (!target) return;
  tip.textContent = target.dataset.tip;
  const box = target.getBoundingClientRect();
  const left = Math.min(box.right + 8, innerWidth - tip.offsetWidth - 8);
  const top = Math.min(box.bottom + 8, innerHeight - tip.offsetHeight - 8);
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
};
for (const kind of ["pointerover", "focusin", "click"]) document.addEventListener(kind, show);
addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
// The script draws its own: the browser's would cover it.
for (const title of document.querySelectorAll("[data-tip] > title")) title.remove();
