// j/k Enter a d / ? Esc: moving over the rows, and filtering them.
(() => {
  "use strict";
  const find = document.getElementById("find");
  const help = document.getElementById("help");
  const letters = document.getElementById("letters");
  const SWITCH = "titen: single-key shortcuts"; // kept by the browser, for all its tabs
  const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
  const selected = () => document.querySelector("[data-selected]");
  let place = -1;

  function select(row) {
    selected()?.removeAttribute("data-selected");
    if (!row) return;
    row.setAttribute("data-selected", "");
    place = rows().indexOf(row);
    row.scrollIntoView({ block: "nearest" });
  }

  function move(step) {
    const all = rows();
    if (!all.length) return;
    const from = selected() ? all.indexOf(selected()) : Math.min(place, all.length) - (step > 0 ? 1 : 0);
    select(all[Math.max(0, Math.min(all.length - 1, from + step))]);
  }

  // A selected row's first or last answer gets the focus; pressing it stays the person's own act.
  // Where the selected row has gone meanwhile, the key selects another first: it was not meant for that one.
  function answer(which) {
    if (!selected() && place >= 0) return move(1);
    if (!selected()) select(rows().find((row) => row.querySelector("[data-first]:not([hidden] *)")));
    const field = selected()?.querySelector(`[data-${which}]:not([hidden] *)`);
    for (let part = field?.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
    field?.focus();
  }

  // Who speaks to the computer, or whose hand trembles, can switch the single keys off (WCAG 2.1.4).
  function areOff() {
    try { return localStorage.getItem(SWITCH) === "off"; } catch { return false; }
  }
  function showSwitch() {
    letters.checked = !areOff();
    document.documentElement.toggleAttribute("data-no-letters", areOff());
  }
  letters.addEventListener("change", () => {
    try { localStorage.setItem(SWITCH, letters.checked ? "on" : "off"); } catch { /* this browser keeps nothing */ }
    showSwitch();
  });
  addEventListener("storage", showSwitch);
  showSwitch();

  const KEYS = {
    j: () => move(1),
    k: () => move(-1),
    Enter: () => selected()?.querySelector("[data-open]")?.click(),
    a: () => answer("first"),
    d: () => answer("last"),
    "/": () => find?.focus(),
    "?": () => help.showModal(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || help.open) return;
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key === "Escape" && typing) {
      if (typing === find) { find.value = ""; filter(); }
      typing.blur();
      return;
    }
    if (typing || !KEYS[event.key] || (event.key.length === 1 && areOff())) return;
    if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
    event.preventDefault();
    KEYS[event.key]();
  });

  document.addEventListener("click", (event) => {
    const row = event.target.closest("[data-row]");
    if (row) select(row);
    for (const menu of document.querySelectorAll("details.menu[open]"))
      if (!menu.contains(event.target)) menu.open = false;
  });

  function filter() {
    const words = find.value.trim().toLowerCase();
    for (const row of document.querySelectorAll("[data-row]")) {
      const hit = !words || row.textContent.toLowerCase().includes(words) || row.contains(document.activeElement);
      row.toggleAttribute("data-filtered", !hit);
    }
  }
  if (!find) return;
  find.addEventListener("input", filter);
  document.addEventListener("htmx:after:swap", filter);
  document.querySelector("[data-find]").addEventListener("submit", (event) => {
    event.preventDefault();
    const id = find.value.trim();
    if (/^task_[0-9a-f]{32}$/.test(id)) location.assign(`/tasks/${id}`);
    else { find.blur(); select(rows()[0]); }
  });
})();
