// Keeps a page up to date by asking for it again: whatever is marked data-live and has changed is
// exchanged. The server renders every number; this file knows none of them.
//
//   <body data-poll="3">        ask every 3 seconds while the page is seen
//   <body data-events="URL">    ask when the study's event stream says that something happened
//   data-on="trial state"       exchange this part after these kinds of events only
//   <button data-post="URL" data-body="JSON" data-confirm="...">

const PACE = 1000; // at most one request in this many milliseconds
const SLOW_PACE = 5000; // without a stream
const EVENT_KINDS = ["state", "trial", "step", "attempt"];

const body = document.body;
const csrfToken = document.querySelector("meta[name=csrf-token]")?.content ?? "";
const connection = document.getElementById("connection");
const seen = new Set(); // kinds of events since the last exchange
let timer = null;
let asking = false;
let outdated = false;
let source = null;

function say(text, isLive = false) {
  connection.hidden = !text;
  connection.classList.toggle("is-live", isLive);
  if (connection.textContent !== text) connection.textContent = text;
}

/** Exchange what has changed. Parts bound to other kinds of events are left alone. */
function exchange(fresh, kinds) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const wanted = part.dataset.on?.split(" ");
    if (wanted && kinds && !wanted.some((kind) => kinds.has(kind))) continue;
    const next = fresh.getElementById(part.id);
    if (!next || part.isEqualNode(next)) continue;
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    const scrolled = [...part.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
    if (part.getAttribute("role") === "status") {
      part.textContent = next.textContent; // the same node, or it would not be read out
      continue;
    }
    part.replaceWith(document.adoptNode(next));
    [...next.querySelectorAll(".scroll")].forEach((box, i) => (box.scrollLeft = scrolled[i] ?? 0));
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }
}

async function refresh(kinds) {
  if (asking) {
    outdated = true; // the answer under way may have been written before what happened now
    return;
  }
  asking = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    if (answer.redirected) return location.assign(answer.url); // the session has ended
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    exchange(fresh, kinds);
    if (body.dataset.events && !fresh.body.dataset.events) stop(); // the study has come to its end
    else if (body.dataset.poll || source === null) say("");
  } catch {
    say("No connection to the service; trying again");
    if (body.dataset.events && source?.readyState !== EventSource.OPEN) later(SLOW_PACE);
  } finally {
    asking = false;
  }
  if (outdated) {
    outdated = false;
    await refresh(null);
  }
}

function later(pace = PACE) {
  timer ??= setTimeout(async () => {
    timer = null;
    const kinds = new Set(seen);
    seen.clear();
    await refresh(kinds.size ? kinds : null);
    if (seen.size) later();
  }, pace);
}

function stop() {
  source?.close();
  source = null;
  delete body.dataset.events;
  say("");
}

function listen() {
  if (!body.dataset.events || source) return;
  source = new EventSource(body.dataset.events);
  source.onopen = () => {
    say("Live", true);
    later(0); // anything may have happened before
  };
  source.onerror = () => {
    if (!source) return;
    const isGone = source.readyState === EventSource.CLOSED;
    if (isGone) source = null;
    if (body.dataset.events) say("Connection lost; trying again");
    later(isGone ? SLOW_PACE : PACE);
    if (isGone) setTimeout(listen, SLOW_PACE);
  };
  for (const kind of EVENT_KINDS) {
    source.addEventListener(kind, () => {
      seen.add(kind);
      later();
    });
  }
}

function poll() {
  const seconds = Number(body.dataset.poll);
  if (!seconds) return;
  setInterval(() => document.hidden || refresh(null), seconds * 1000);
}

/** An open stream holds one of the few connections a browser has per server: only seen pages do. */
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    source?.close();
    source = null;
  } else if (body.dataset.events) {
    listen();
  } else if (body.dataset.poll) {
    refresh(null);
  }
});

async function act(button) {
  const refusal = document.getElementById("refusal");
  if (button.dataset.confirm && !confirm(button.dataset.confirm)) return;
  button.disabled = true;
  refusal.hidden = true;
  try {
    const answer = await fetch(button.dataset.post, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRF-Token": csrfToken },
      body: button.dataset.body,
    });
    if (!answer.ok) {
      const problem = await answer.json().catch(() => ({}));
      throw new Error(problem.detail ?? `the service answered HTTP ${answer.status}`);
    }
  } catch (error) {
    refusal.textContent = error.message;
    refusal.hidden = false;
    button.disabled = false;
  }
  await refresh(null);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-post]");
  if (button) act(button);
});

if (!document.hidden) listen();
poll();
