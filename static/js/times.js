// Keeps times relative: <time data-tick="ago|left|at">. The server's clock counts, not the browser's.
(() => {
  "use strict";
  const told = Date.parse(document.querySelector('meta[name="server-time"]')?.content ?? "");
  const skew = Number.isNaN(told) ? 0 : told - Date.now();
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  // 75 -> "1 min"; with two: "1 min 15 s".
  function span(seconds, parts) {
    let rest = Math.max(0, Math.floor(seconds));
    if (rest === 0) return "0 s";
    const words = [];
    for (const [size, name] of UNITS) {
      if (rest >= size || (words.length && words.length < parts)) {
        words.push(`${Math.floor(rest / size)} ${name}`);
        rest %= size;
        if (words.length === parts) break;
      }
    }
    return words.join(" ");
  }

  function say(element, now) {
    const seconds = (Date.parse(element.dateTime) - now) / 1000;
    if (element.dataset.tick === "left") {
      const late = seconds <= 0;
      element.toggleAttribute("data-late", late);
      return late ? "ran out" : `${span(seconds, seconds < 3600 ? 2 : 1)} left`;
    }
    if (element.dataset.tick === "at" && seconds > 0) return `in ${span(seconds, 2)}`;
    return seconds > -1 ? "now" : `${span(-seconds, 1)} ago`;
  }

  function tick() {
    const now = Date.now() + skew;
    for (const element of document.querySelectorAll("time[data-tick]")) {
      const text = say(element, now);
      if (element.textContent !== text) element.textContent = text;
    }
  }

  tick();
  setInterval(tick, 1000);
  document.addEventListener("htmx:after:swap", tick);
  document.addEventListener("visibilitychange", () => document.hidden || tick());
})();
