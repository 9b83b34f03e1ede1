(() => {
  "use strict";
  const all = (what, within = document) => [...within.querySelectorAll(what)];

  // One stop of the keyboard for each grid; the arrows move within it.
  for (const grid of all("[data-grid]")) {
    const stops = () => all("a, button.value, summary", grid).filter((it) => it.checkVisibility());
    const rest = (kept) => stops().forEach((it) => { it.tabIndex = it === kept ? 0 : -1; });
    rest(stops()[0]);
    grid.addEventListener("focusin", (event) => { if (stops().includes(event.target)) rest(event.target); });
    grid.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 0, ArrowUp: 0, Home: -1e6, End: 1e6 }[event.key];
      const known = stops(), at = known.indexOf(document.activeElement);
      if (step === undefined || at < 0) return;
      event.preventDefault();
      const cell = known[at].closest("td, th");
      const by = step || (event.key === "ArrowDown" ? 1 : -1);
      let next = known[Math.min(Math.max(at + by, 0), known.length - 1)];
      if (step === 0 && cell && grid.contains(cell)) {
        const way = event.key === "ArrowDown" ? "nextElementSibling" : "previousElementSibling";
        let row = cell.parentElement[way], found;
        while (row && !(found = row.cells[cell.cellIndex]?.querySelector("a, button.value"))) row = row[way];
        next = found || next;
      }
      next.focus();
    });
  }

  // Only what can be scrolled is a stop.
  const scrolled = () => all(".scroll").forEach((it) => {
    if (it.scrollWidth > it.clientWidth + 1) it.tabIndex = 0; else it.removeAttribute("tabindex");
  });
  scrolled();
  addEventListener("resize", scrolled);

  // Rows by a column: largest first, smallest first, as the paper has them.
  for (const table of all("table.matrix")) {
    const body = table.tBodies[0], given = [...body.rows];
    all("thead tr:last-child th", table).forEach((head, column) => {
      if (!head.dataset.sort) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.tabIndex = column === 1 ? 0 : -1;
      button.title = "sort by this column";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const way = { descending: "ascending", ascending: "none" }[head.ariaSort] || "descending";
        all("th", table).forEach((it) => { it.ariaSort = null; });
        head.ariaSort = way;
        const value = (row) => parseFloat(row.cells[column].dataset.value);
        const known = given.filter((row) => !isNaN(value(row))), none = given.filter((row) => isNaN(value(row)));
        known.sort((a, b) => (way === "ascending" ? 1 : -1) * (value(a) - value(b)));
        body.append(...(way === "none" ? given : [...known, ...none]));
      });
    });
  }

  // Tables and claims that hold all words.
  const field = document.getElementById("filter");
  if (field) {
    field.closest("label").hidden = false;
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      const holds = (text) => words.every((word) => text.toLowerCase().includes(word));
      all("section.table").forEach((it) => { it.classList.toggle("out", !holds(it.textContent)); });
      all(".ledger tr.claim").forEach((it) => {
        it.classList.toggle("out", !holds(it.textContent + it.closest("tbody").rows[0].textContent));
      });
    });
  }

  // Where the reader is.
  const links = new Map(all("nav a").map((link) => [decodeURIComponent(link.hash.slice(1)), link]));
  const places = all("section[id]").filter((it) => links.has(it.id));
  let waiting = false;
  const mark = () => {
    waiting = false;
    const above = places.filter((it) => it.getBoundingClientRect().top < 120);
    const here = above[above.length - 1];
    links.forEach((link, id) => {
      if (here && id === here.id) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    });
  };
  addEventListener("scroll", () => { if (!waiting) { waiting = true; requestAnimationFrame(mark); } }, { passive: true });
  mark();
})();
