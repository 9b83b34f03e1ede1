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
    if (it.isIntersecting) { seen.unobserve(it.target); measured.observe(it.target); tools(it.target); }
  }), { rootMargin: "200px" });

  // Tables and pictures to take along: as text between tabs, CSV, LaTeX and SVG.
  const text = (it) => (it.nodeName === "SUB" ? `_{${it.textContent}}` : it.childElementCount ? [...it.childNodes].map(text).join("") : it.textContent);
  const words = (cell) => [...cell.childNodes].filter((it) => it.nodeName !== "svg")
    .map((it) => (it.nodeName === "BR" ? " " : it.className === "printed" ? `(${it.textContent})` : text(it))).join(" ").replace(/[▲▼]/g, "").replace(/\s+/g, " ").trim();
  const rows = (table) => [...table.rows].filter((row) => row.checkVisibility()).map((row) => [...row.cells]
    .filter((cell) => !cell.classList.contains("draw"))
    .flatMap((cell) => [words(cell), ...Array(cell.colSpan - 1).fill("")]));
  const inert = (text) => (/^[=+\-@]/.test(text) && isNaN(parseFloat(text)) ? "'" + text : text);
  const forms = {
    csv: (table) => rows(table).map((row) => row.map((it) => `"${inert(it).replaceAll('"', '""')}"`).join(",")).join("\r\n") + "\r\n",
    tex: (table) => {
      const special = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", "–": "--", "−": "$-$", "→": "$\\to$", "θ": "$\\theta$", "ρ": "$\\rho$", "<": "$<$", ">": "$>$" };
      const safe = (text) => text.replace(/(θ|\w)(\*?)_\{(.*?)\}|[\\~^±–−→θρ<>]|[{}$&#%_]/g, (it, of, star, below) => of ? `$${of === "θ" ? "\\theta" : of}${star && "^*"}_{${/[a-z]{2}/.test(below) ? `\\mathrm{${below}}` : below.replace("→", "\\to ").replace(/(.)\u0304/g, "\\bar{$1}")}}$` : special[it] ?? "\\" + it).replace(/(.)\u0304/g, "$$\\bar{$1}$$");
      const lines = rows(table).map((row) => row.map(safe).join(" & ") + " \\\\");
      const head = table.tHead ? table.tHead.rows.length : 0;
      const width = Math.max(...rows(table).map((row) => row.length));
      return ["\\begin{tabular}{l" + "r".repeat(width - 1) + "}", "\\toprule", ...lines.slice(0, head), "\\midrule", ...lines.slice(head), "\\bottomrule", "\\end{tabular}", ""].join("\n");
    },
  };
  const keep = (name, address) => {
    const link = document.createElement("a");
    link.href = address;
    link.download = name;
    link.click();
  };
  const copy = async (text) => {
    try { await navigator.clipboard.writeText(text); } catch {
      const field = document.createElement("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
  };
  const tools = (place) => {
    const table = place.querySelector("table"), picture = place.querySelector("img");
    const section = place.closest("[id]"), heading = place.closest("figure")?.querySelector("h3");
    const name = heading ? heading.textContent.split(":")[0].replace(/\W+/g, "").toLowerCase() : section ? section.id : "eva";
    const does = table ? {
      Copy: () => copy(rows(table).map((row) => row.join("\t")).join("\n")),
      CSV: () => keep(`${name}.csv`, "data:text/csv;charset=utf-8," + encodeURIComponent(forms.csv(table))),
      LaTeX: () => copy(forms.tex(table)),
    } : picture ? {
      SVG: () => keep(`${name}.svg`, picture.src),
    } : {};
    const bar = document.createElement("div");
    bar.className = "tools";
    for (const [said, act] of Object.entries(does)) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = said;
      button.title = said === "SVG" || said === "CSV" ? `save as ${said}` : said === "LaTeX" ? "copy as LaTeX" : "copy, for a spreadsheet";
      button.addEventListener("click", async () => {
        await act();
        button.textContent = "✓ " + said;
        setTimeout(() => { button.textContent = said; }, 1500);
      });
      bar.append(button);
    }
    if (bar.children.length) place.before(bar);
  };
  all(".scroll").forEach((it) => seen.observe(it));

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

  // What happened to prompts: by row and seed, by words, and of two rows side by side.
  const browse = document.getElementById("browse");
  if (browse) {
    const [row, beside, seed, said] = ["row", "beside", "seed", "words"].map((name) => document.getElementById(`browse-${name}`));
    const every = all(".lineage");
    browse.hidden = every.length < 2;
    browse.addEventListener("input", () => {
      const asked = said.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = every.filter((it) => {
        const side = beside.value && it.dataset.row === beside.value ? 2 : !row.value || it.dataset.row === row.value ? 1 : 0;
        const seen = side && (!seed.value || it.dataset.seed === seed.value) && asked.every((word) => it.textContent.toLowerCase().includes(word));
        it.dataset.side = side;
        it.classList.toggle("out", !seen);
        return seen;
      });
      document.getElementById("lineages").classList.toggle("two", Boolean(beside.value));
      document.getElementById("browse-found").textContent = found.length ? `${found.length} of ${every.length}` : "nothing found";
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
