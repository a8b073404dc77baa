// The rows of a section with data-hold keep their places while a pointer or a finger could hit another one instead:
// what is over stays there, without its buttons and with what became of it, and what is new comes below. When the
// pointer has left the section and no finger is down, the section is shown as the server sent it.
(() => {
  "use strict";
  const ROW = "[data-row][id]";
  const LIFTED = 400; // milliseconds after a finger has gone, when its click is over too
  const later = new Map(); // the id of a section -> its HTML as the server sent it last
  let x, y, fingers = 0, byMouse = navigator.maxTouchPoints === 0;
  let lastX, lastY;

  document.addEventListener("pointermove", (event) => {
    if (event.pointerType === "touch") return;
    [x, y] = [event.clientX, event.clientY];
    if (lastX !== undefined && (event.screenX !== lastX || event.screenY !== lastY)) byMouse = true;
    [lastX, lastY] = [event.screenX, event.screenY];
    release();
  });
  document.documentElement.addEventListener("pointerleave", () => { x = undefined; release(); });
  for (const kind of ["touchstart", "touchend", "touchcancel"])
    document.addEventListener(kind, (event) => {
      [fingers, byMouse] = [event.touches.length, false];
      if (!fingers) setTimeout(() => fingers || release(true), LIFTED);
    }, { passive: true });

  const under = () => (x === undefined ? null : document.elementFromPoint(x, y));
  // Where fingers are used, nobody knows where the next one falls, until one has come and gone.
  const isHeld = (section) => fingers > 0 || !byMouse || section.contains(under());

  function release(lifted = false) {
    for (const [id, html] of later) {
      const section = document.getElementById(id);
      if (section && !lifted && isHeld(section)) continue;
      later.delete(id);
      if (section) show(id, html);
    }
  }

  let releasing = false;
  function show(id, html) {
    const text = `<hx-partial hx-target="#${id}" hx-swap="outerMorph">${html}</hx-partial>`;
    releasing = true;
    htmx.swap({ sourceElement: document.body, text, swap: "none" });
    releasing = false;
  }

  document.addEventListener("htmx:before:swap", (event) => {
    const fragments = event.detail.tasks.map((task) => task.fragment);
    for (const { target, fragment } of event.detail.tasks) {
      const section = fragment?.firstElementChild;
      if (!target?.matches("[data-hold]") || section?.id !== target.id) continue;
      later.delete(target.id);
      const rows = [...target.querySelectorAll(ROW)];
      if (releasing || !rows.length || !isHeld(target)) continue;
      const html = section.outerHTML;
      if (hold(target, section, rows, fragments)) later.set(target.id, html);
    }
  });

  // Make the new section keep the order of the old one. False when it does so by itself.
  function hold(target, section, rows, fragments) {
    const come = [...section.querySelectorAll(ROW)];
    const known = new Map(come.map((row) => [row.id, row]));
    const ids = new Set(rows.map((row) => row.id));
    const kept = rows.filter((row) => known.has(row.id) || isInTheWay(row)).map((row) => known.get(row.id) ?? settle(row, fragments));
    const wanted = [...kept, ...come.filter((row) => !ids.has(row.id))];
    if (wanted.length === come.length && wanted.every((row, place) => row === come[place])) return false;
    const place = listOf(target, section, rows[0]);
    const after = place === section ? section.querySelector(":scope > h2") : null;
    if (after) after.after(...wanted);
    else place.prepend(...wanted);
    section.hidden = false;
    return true;
  }

  // What ends below the window moves nothing that somebody sees.
  const isInTheWay = (row) => row.getBoundingClientRect().top < innerHeight;

  // Where the rows stand in the new section; it may come without a list for them.
  function listOf(target, section, row) {
    if (row.parentElement === target) return section;
    const found = section.querySelector("ul.rows");
    if (found) return found;
    const made = row.parentElement.cloneNode(false);
    section.append(made);
    return made;
  }

  // A copy of a row that is over: as tall as it was, and nothing in it does anything.
  function settle(row, fragments) {
    const copy = row.cloneNode(true);
    if (copy.matches("[data-settled]")) return copy;
    copy.id = `settled-${row.id}`;
    copy.dataset.settled = row.id;
    copy.removeAttribute("data-selected");
    for (const part of copy.querySelectorAll("[id]")) part.id = `settled-${part.id}`;
    copy.setAttribute("aria-labelledby", `settled-${row.getAttribute("aria-labelledby")}`);
    for (const part of copy.querySelectorAll("button, input, textarea, select")) part.disabled = true;
    for (const part of copy.querySelectorAll("[data-first], [data-last]")) {
      part.removeAttribute("data-first");
      part.removeAttribute("data-last");
    }
    for (const form of copy.querySelectorAll("form")) {
      for (const name of ["action", ...form.getAttributeNames().filter((each) => each.startsWith("hx-"))]) form.removeAttribute(name);
      form.setAttribute("method", "dialog");
    }
    const became = document.createElement("p");
    became.className = "became";
    became.setAttribute("role", "status");
    became.textContent = "This is over.";
    copy.append(became);
    tell(row, fragments);
    return copy;
  }

  // What became of it: the message says it elsewhere, or the page that the row leads to.
  async function tell(row, fragments) {
    const find = (root) => root.querySelector(`[data-became="${row.id}"]`);
    let said = fragments.map(find).find(Boolean) ?? find(document);
    const link = row.querySelector("a[data-open]");
    if (!said && link) {
      const answer = await fetch(link.href, { headers: { Accept: "text/html" } }).catch(() => null);
      if (answer?.ok) said = find(new DOMParser().parseFromString(await answer.text(), "text/html"));
    }
    await null; // the message that it came with is shown first
    const shown = document.querySelector(`[data-settled="${row.id}"] > .became`);
    if (said && shown) shown.textContent = said.textContent.replace(/\s+/g, " ").trim();
  }
})();
