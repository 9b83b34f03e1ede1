(() => {
  "use strict";
  const all = (what, within = document) => [...within.querySelectorAll(what)];

  // One stop of the keyboard for each grid; the arrows move within it. What is seen is asked for
  // where a key is pressed, and never before: it would lay out the whole page.
  for (const grid of all("[data-grid]")) {
    const every = () => all("a, button.value, summary", grid);
    let kept = null;
    every().forEach((it) => { if (kept) it.tabIndex = -1; else kept = it; });
    grid.addEventListener("focusin", (event) => {
      const here = event.target.closest("a, button.value, summary");
      if (!here || here === kept) return;
      kept.tabIndex = -1;
      here.tabIndex = 0;
      kept = here;
    });
    grid.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 0, ArrowUp: 0, Home: -1e6, End: 1e6 }[event.key];
      if (step === undefined) return;
      const known = every().filter((it) => it.checkVisibility()), at = known.indexOf(document.activeElement);
      if (at < 0) return;
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

  // Only what can be scrolled is a stop; each is measured once it comes into sight.
  const measured = new ResizeObserver((found) => found.forEach(({ target: it }) => {
    if (it.scrollWidth > it.clientWidth + 1) it.tabIndex = 0; else it.removeAttribute("tabindex");
  }));
  const seen = new IntersectionObserver((found) => found.forEach((it) => {
    if (it.isIntersecting) { seen.unobserve(it.target); measured.observe(it.target); }
  }), { rootMargin: "200px" });

  all(".scroll").forEach((it) => seen.observe(it));

  // Tables and claims that hold all words, in the contents and in the counts as well.
  const field = document.getElementById("filter");
  if (field) {
    field.closest("label").hidden = false;
    const tables = all("section.table"), claims = all(".ledger tr.claim"), counts = all("[data-count]");
    const ids = new Set(tables.map((it) => it.id)), named = all(":is(nav li, .overview th, .findings th) > a").filter((it) => ids.has(it.hash.slice(1)));
    const texts = new Map(), text = (it) => {
      if (!texts.has(it)) {
        const place = it.closest("tbody") && it.matches("tr.claim") ? it.closest("tbody").rows[0].textContent : "";
        texts.set(it, (it.textContent + place).toLowerCase());
      }
      return texts.get(it);
    };
    field.addEventListener("input", () => {
      const asked = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      const holds = (it) => asked.every((word) => text(it).includes(word));
      const left = (found) => found.filter((it) => { const out = !holds(it); it.classList.toggle("out", out); return !out; });
      const places = new Set(left(tables).map((it) => it.id)), said = left(claims);
      all(".ledger tbody").forEach((it) => it.classList.toggle("out", !it.querySelector("tr.claim:not(.out)")));
      named.forEach((it) => it.closest("li, tr").classList.toggle("out", !places.has(it.hash.slice(1))));
      counts.forEach((it) => { it.textContent = it.dataset.count ? said.filter((claim) => claim.classList.contains(it.dataset.count)).length : said.length; });
      document.getElementById("nothing").hidden = places.size + said.length > 0;
    });
  }

  // Where the reader is.
  const links = new Map(all("nav a").map((link) => [decodeURIComponent(link.hash.slice(1)), link]));
  const inside = new Set(), order = all("section[id]").filter((it) => links.has(it.id));
  let here = order[0];
  const watch = new IntersectionObserver((found) => {
    found.forEach((it) => { if (it.isIntersecting) inside.add(it.target); else inside.delete(it.target); });
    here = order.filter((it) => inside.has(it)).pop() || here;
    links.forEach((link, id) => {
      if (here && id === here.id) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    });
  }, { rootMargin: "-120px 0px -85% 0px" });
  order.forEach((it) => watch.observe(it));
})();
