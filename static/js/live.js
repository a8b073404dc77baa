// Says how live the page is, and sees that its stream comes back.
(() => {
  "use strict";
  const stream = document.getElementById("stream");
  const sign = document.getElementById("live");
  if (!stream || !sign) return;
  const WORDS = { connecting: "connecting…", live: "live", lost: "reconnecting…", ended: "logged out", off: "not live: reload to update" };
  const QUIET = 30_000;
  let delay = 500, timer, watched, connection;

  function show(state) {
    sign.dataset.state = state;
    const words = sign.querySelector("span");
    if (state !== "ended") { words.textContent = WORDS[state]; return; }
    const link = document.createElement("a");
    link.href = `${document.body.dataset.login}?next=${encodeURIComponent(location.pathname + location.search)}`;
    link.textContent = "logged out: log in again";
    words.replaceChildren(link);
  }

  // 401 and 403: the session is over. 404: this server has no stream here. Anything else passes.
  function failed(status) {
    if (sign.dataset.state === "ended") return;
    if (status === 401 || status === 403) return show("ended");
    if (status === 404) return show("off");
    show("lost");
    clearTimeout(timer);
    timer = setTimeout(() => stream.isConnected && !stream._htmx?.sse && htmx.trigger(stream, "reconnect"), delay);
    delay = Math.min(delay * 2, 8000);
  }

  stream.addEventListener("htmx:sse:after:connection", (event) => { connection = event.detail.connection; delay = 500; show("live"); });
  stream.addEventListener("htmx:sse:before:connection", (event) => {
    if (sign.dataset.state === "ended") event.detail.connection.cancelled = true;
    else if (event.detail.connection.attempt > 0) show("lost");
  });
  stream.addEventListener("htmx:sse:error", (event) => failed(event.detail.status));
  stream.addEventListener("htmx:sse:close", () => { connection = null; failed(); });
  stream.addEventListener("titen-session-ended", () => show("ended"));
  stream.addEventListener("htmx:error", () => failed());
  stream.addEventListener("htmx:response:error", (event) => failed(event.detail.ctx.response.status));

  // The server sends the event "alive" while nothing happens. A connection that has gone silent is dead.
  function heard() {
    clearTimeout(watched);
    watched = setTimeout(() => { show("lost"); connection?.reader?.cancel(); }, QUIET);
  }
  stream.addEventListener("alive", heard);
  stream.addEventListener("htmx:sse:after:message", () => watched && heard());

  // The tab's title says how much waits.
  const title = document.title;
  function count() {
    const waiting = Number(document.querySelector("[data-count]")?.dataset.count ?? 0);
    document.title = waiting ? `(${waiting}) ${title}` : title;
  }
  count();
  document.addEventListener("htmx:after:swap", count);
})();
