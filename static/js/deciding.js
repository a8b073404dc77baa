// Deciding: reasons at a click, no decision by a key in a field, and no click on a button that came under
// the cursor by itself.
(() => {
  "use strict";
  document.addEventListener("click", (event) => {
    const preset = event.target.closest("button[data-fill]");
    if (!preset) return;
    const field = document.getElementById(preset.dataset.fill);
    field.value = preset.textContent;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.focus();
  });

  // Enter in a field presses the button of no-enter.html, which sends nothing by itself; htmx would send it.
  document.addEventListener("submit", (event) => {
    if (!event.submitter?.matches("[data-no-enter]")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);

  // Which button the pointer was last moved over by its person, and where the buttons were before they moved by
  // themselves: when a row comes or goes, another button slides beneath a finger that is already falling.
  const BUTTONS = "main form[method=post] button:not([type=button])";
  const MOMENT = 700; // milliseconds that a person needs to see that something has moved
  const nameOf = (button) => `${button.form.getAttribute("action")} ${button.name} ${button.value}`;
  const buttonAt = (node) => { const found = node.closest?.(BUTTONS); return found ? nameOf(found) : ""; };
  let over, x, y, before = [];
  document.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "mouse" || (event.screenX === x && event.screenY === y)) return;
    [over, x, y] = [buttonAt(event.target), event.screenX, event.screenY];
  });
  for (const moved of ["wheel", "keydown", "touchstart"])
    document.addEventListener(moved, () => { over = undefined; }, { passive: true });
  // Whoever scrolls moves the buttons.
  document.addEventListener("scroll", () => { before = []; }, { passive: true, capture: true });

  document.addEventListener("htmx:before:swap", () => {
    const now = performance.now();
    before = before.filter((each) => now - each.at < MOMENT);
    for (const part of document.querySelectorAll(`${BUTTONS}, [data-settled]`)) {
      const box = part.getBoundingClientRect();
      if (box.width) before.push({ at: now, name: part.form ? nameOf(part) : part.id, box });
    }
  });

  function wasAnother({ clientX, clientY }, name) {
    const since = performance.now() - MOMENT;
    const here = before.filter(({ at, box }) => at > since && clientX >= box.left && clientX <= box.right &&
      clientY >= box.top && clientY <= box.bottom);
    return here.some((each) => each.name !== name);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest(BUTTONS);
    if (!button || !event.pointerType) return;
    const name = nameOf(button);
    const slid = event.pointerType === "mouse" && over !== undefined && over !== name;
    if (!slid && !wasAnother(event, name)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    [over, before] = [name, []];
    const made = document.getElementById("toast").content.cloneNode(true);
    made.querySelector("b").textContent = "Another button came under the cursor.";
    made.querySelector("span").textContent = "Your click changed nothing: read what this one does, then click again.";
    document.getElementById("toasts").append(made);
  }, true);
})();
