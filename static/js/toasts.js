// Every click ends in something to see: the server's message, or ours when the server sent none.
// What was typed survives: morphs, failures, and the way over the login (in this tab's storage).
(() => {
  "use strict";
  const toasts = document.getElementById("toasts");
  const principal = document.body.dataset.principal;

  function toast(title, text) {
    const made = document.getElementById("toast").content.cloneNode(true);
    made.querySelector("b").textContent = title;
    made.querySelector("span").textContent = text;
    toasts.append(made);
  }

  // Good news leaves by itself; at most four stay.
  new MutationObserver((changes) => {
    for (const change of changes)
      for (const node of change.addedNodes)
        if (node.classList?.contains("is-good")) setTimeout(() => node.remove(), 6000);
    while (toasts.children.length > 4) toasts.firstElementChild.remove();
  }).observe(toasts, { childList: true });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.matches("[data-close]")) button.closest(".toast").remove();
    if (button.matches("[data-reload]")) location.reload();
    if (button.matches("[data-help]")) document.getElementById("help").showModal();
    if (button.matches("[data-copy]"))
      navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent)
        .then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Select and copy it"; });
  });

  const isStream = (event) => event.target.id === "stream";

  document.addEventListener("htmx:response:error", (event) => {
    const { response, text } = event.detail.ctx;
    if (isStream(event) || response.headers.get("HX-Redirect") || text.includes("hx-target=\"#toasts\"")) return;
    toast("That did not work.", `The server answered ${response.status}. What you typed is still here.`);
  });

  document.addEventListener("htmx:error", (event) => {
    if (isStream(event) || !event.detail.ctx) return;
    toast("No answer from the server.", "It is not known whether it was done: look at the row, then try again. What you typed is still here.");
  });

  // A morph keeps what a person typed, so a form that did its work is emptied by hand.
  document.addEventListener("htmx:after:swap", (event) => {
    const form = event.detail.ctx?.sourceElement;
    if (!(form instanceof HTMLFormElement) || event.detail.ctx.response?.status >= 400) return;
    form.reset();
    form.closest("details.verb")?.removeAttribute("open");
    for (const field of form.elements) sessionStorage.removeItem(key(field));
  });

  // What only the holder of a run may do is in everybody's page, hidden: the bytes are the same for all.
  // And what one person alone must not do is hidden from them.
  function showMine() {
    for (const part of document.querySelectorAll("[data-for]")) part.hidden = part.dataset.for !== principal;
    for (const part of document.querySelectorAll("[data-unless]")) part.hidden = part.dataset.unless === principal;
  }
  showMine();
  document.addEventListener("htmx:after:swap", showMine);

  const key = (field) => `draft ${principal} ${location.pathname} ${field.id}`;
  const typed = "textarea[id], input[name=reason][id], input[name=sentence][id]";
  document.addEventListener("input", (event) => {
    if (!event.target.matches(typed)) return;
    if (event.target.value) sessionStorage.setItem(key(event.target), event.target.value);
    else sessionStorage.removeItem(key(event.target));
  });
  for (const field of document.querySelectorAll(typed)) {
    const draft = sessionStorage.getItem(key(field));
    if (!draft || field.value) continue;
    field.value = draft;
    for (let part = field.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  }
  document.querySelector("[data-logout]")?.addEventListener("submit", () => sessionStorage.clear());

  // Attributes that are the browser's own state, and no server's business.
  htmx.registerExtension("titen", {
    htmx_before_morph_attr: (element, { attrName }) =>
      !((attrName === "open" && element.localName === "details") ||
        attrName === "data-selected" || attrName === "data-filtered" || attrName === "data-late" ||
        (attrName === "disabled" && element._htmx_state?.dc)),
  });
})();
