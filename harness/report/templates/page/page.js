(() => {
  "use strict";
  const all = (what, within = document) => [...within.querySelectorAll(what)];

  // The claims are sorted by the column whose heading is pressed, and the other way round when it is pressed again.
  all(".ledger th > button").forEach((button) => {
    const head = button.parentElement;
    button.disabled = false;
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      all(".ledger th[aria-sort]").forEach((it) => it.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => row.cells[head.cellIndex].dataset.value;
      const order = (a, b) => (a === "") - (b === "") || (up ? 1 : -1) * (isNaN(a) ? a.localeCompare(b) : a - b);
      const body = document.querySelector(".ledger tbody");
      body.append(...[...body.rows].sort((a, b) => order(value(a), value(b))));
    });
  });

  // Shown are the tables and claims that hold the text, in the contents and the counts as well.
  const field = document.getElementById("filter");
  field.closest("label").hidden = false;
  const tables = all("section.table"), claims = all("tr.claim"), named = all("nav li li");
  const texts = new Map([...tables, ...claims].map((it) => [it, it.textContent.toLowerCase()]));
  field.addEventListener("input", () => {
    const said = field.value.trim().toLowerCase();
    texts.forEach((text, it) => it.classList.toggle("out", !text.includes(said)));
    named.forEach((it, place) => it.classList.toggle("out", tables[place].classList.contains("out")));
    all("[data-count]").forEach((it) => { it.textContent = all(`tr.${it.dataset.count}:not(.out)`).length; });
  });
})();
