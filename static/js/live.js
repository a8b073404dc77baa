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
  function count(root = document) {
    const waiting = Number(root.querySelector("[data-count]")?.dataset.count ?? 0);
    document.title = waiting ? `(${waiting}) ${title}` : title;
  }
  count();
  document.addEventListener("htmx:after:swap", () => count());

  // The stream rests while the tab is hidden, which is when its title is needed: its first message, which holds the
  // whole page, is asked for now and then. A stream kept open would take one of the few connections that a browser
  // has for all tabs.
  const REST = 5000;
  let resting;
  async function look() {
    const url = stream.getAttribute("hx-sse:connect");
    const answer = await fetch(url, { headers: { Accept: "text/event-stream" }, signal: AbortSignal.timeout(REST) });
    if (answer.status === 401 || answer.status === 403) return false;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    try {
      for (let text = "", part = await reader.read(); !part.done; part = await reader.read()) {
        text += part.value;
        if (text.includes("event: titen-session-ended")) return false;
        const message = text.split("\n\n").slice(0, -1).find((each) => each.startsWith("data:"));
        if (!message) continue;
        if (document.hidden) count(new DOMParser().parseFromString(message.replace(/^data: ?/gm, ""), "text/html"));
        return true;
      }
    } finally {
      reader.cancel();
    }
    return true;
  }
  async function rest() {
    clearTimeout(resting);
    if (!document.hidden) return;
    const goesOn = await look().catch(() => true);
    if (goesOn) resting = setTimeout(rest, REST);
  }
  document.addEventListener("visibilitychange", rest);
  rest();
})();
