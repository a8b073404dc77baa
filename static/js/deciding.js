// Deciding: reasons at a click, and no click on a card that came under the cursor by itself.
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

  // Which card the pointer was last moved over by its person. A card that goes away lets the next one slide up
  // beneath a finger that is already falling: browsers report that as a move to the same place.
  const cardOf = (node) => node.closest?.("article.card")?.id;
  let over, x, y;
  document.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "mouse" || (event.screenX === x && event.screenY === y)) return;
    [over, x, y] = [cardOf(event.target) ?? "", event.screenX, event.screenY];
  });
  for (const moved of ["wheel", "keydown", "touchstart"])
    document.addEventListener(moved, () => { over = undefined; }, { passive: true });

  document.addEventListener("click", (event) => {
    const card = event.target.closest("form.decide button:not([type=button])") && cardOf(event.target);
    if (!card || event.pointerType !== "mouse" || over === undefined || over === card) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    over = card;
    const made = document.getElementById("toast").content.cloneNode(true);
    made.querySelector("b").textContent = "Another card came under the cursor.";
    made.querySelector("span").textContent = "Your click changed nothing: read this one, then click again.";
    document.getElementById("toasts").append(made);
  }, true);
})();
