(() => {
  "use strict";
  const all = (what, within = document) => [...within.querySelectorAll(what)];

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
})();
