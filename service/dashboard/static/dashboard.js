// What htmx does not do by itself: to say how the connection is, what was refused and why, and to
// act on the few things that only a browser can (ticks, copies, lines of a text). It renders no number.

const main = () => document.getElementById("main");

/* The connection */

function say(text, isLive = false) {
  const connection = document.getElementById("connection");
  connection.hidden = !text;
  connection.classList.toggle("is-live", isLive);
  if (connection.textContent !== text) connection.textContent = text;
}

const isStream = (element) => element?.id === "stream";

document.addEventListener("htmx:sse:before:connection", ({ detail: { connection } }) => {
  if (connection.attempt > 0 && !document.hidden) say("Connection lost; trying again");
});
document.addEventListener("htmx:sse:after:connection", ({ detail: { connection } }) => {
  if (connection.status === 200) say("Live", true);
});
document.addEventListener("htmx:sse:close", () => say(""));
document.addEventListener("htmx:sse:error", ({ detail: { status } }) => {
  if (status === 401) signIn(); // the stream ended with its session
});

/* A final state is the last event: who asked again would be told that there is nothing. */
document.addEventListener("state", ({ target, detail }) => {
  if (isStream(target) && target.dataset.final.split(" ").includes(JSON.parse(detail.data).state)) {
    target.remove();
  }
});

/* Nobody looks at a page in the background, a button that submits a form with one of its fields says that field,
   and an address holds no empty one but those that have to be filled in: what is missing is said. */
document.addEventListener("htmx:config:request", (event) => {
  const { ctx } = event.detail;
  const { sourceEvent, request } = ctx;
  const { form, submitter } = request;
  ctx.focused = document.activeElement;
  const field = submitter?.name && form?.querySelector(`[name="${submitter.name}"]:not(button)`);
  if (field) {
    field.value = submitter.value;
    request.body.set(field.name, field.value);
  }
  if (sourceEvent?.type === "every" && document.hidden) event.preventDefault();
  if (request.method === "GET") {
    for (const [name, value] of [...request.body]) {
      if (!value && !form?.elements[name]?.required) request.body.delete(name, value);
    }
  }
});

/* What someone did: what the API takes is JSON, what it refuses is said in its own words */

const ACTS = new Set(["click", "submit", "change", "input"]);
const isAct = ({ sourceEvent }) => ACTS.has(sourceEvent?.type);

const closing = Object.assign(document.createElement("button"), { type: "button", className: "link", textContent: "Close" });
closing.addEventListener("click", close);
document.addEventListener("keydown", ({ key }) => {
  if (key === "Escape" && !document.getElementById("refusal").hidden) close();
});

/** Who has read it is again where it was said of. */
let acted = null;
function close() {
  refuse("");
  acted?.focus({ preventScroll: true });
  if (document.activeElement === document.body) main().focus({ preventScroll: true });
}

function refuse(text) {
  const refusal = document.getElementById("refusal");
  refusal.replaceChildren(...(text ? [text, " ", closing] : []));
  refusal.hidden = !text;
}

function problemOf({ text, response }) {
  try {
    return JSON.parse(text);
  } catch {
    return { detail: `The service answered HTTP ${response.status}` };
  }
}

const detailOf = (ctx) => problemOf(ctx).detail;

document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
  if (isAct(ctx)) {
    refuse("");
    acted = ctx.focused;
  }
  if (ctx.request.method === "GET" || !ctx.sourceElement.hasAttribute("data-json")) return;
  ctx.request.headers["Content-Type"] = "application/json";
  ctx.request.body = JSON.stringify(ctx.vals ?? {});
});

document.addEventListener("htmx:after:request", (event) => {
  const { ctx } = event.detail;
  const { raw, status } = ctx.response;
  if (raw.redirected && new URL(raw.url).pathname.endsWith("/ui/sign-in")) {
    event.preventDefault();
    signIn();
  } else if (status < 400 && ctx.request.method !== "GET") {
    if (ctx.sourceElement.hasAttribute("data-reset")) ctx.sourceElement.reset();
    htmx.trigger(document.body, "refresh");
  } else if (status < 400 && ctx.sourceElement.hasAttribute("data-reload")) {
    location.reload(); // what was away is there again
  } else if (status < 400 && ctx.sourceElement === main() && !document.getElementById("stream")) {
    say("");
  }
});

/* <button data-doing="Checking …"> says so where the answer will be, if that takes longer than a moment: what stands there
   until then is of before. */
const MOMENT_MS = 400;
const doing = Object.assign(document.createElement("p"), { className: "doing" });
const whatIsDone = ({ request, sourceElement }) => (request.submitter ?? sourceElement).dataset.doing;
let begins = null;

document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
  if (!whatIsDone(ctx)) return;
  clearTimeout(begins);
  begins = setTimeout(() => {
    doing.textContent = whatIsDone(ctx);
    document.querySelector(ctx.sourceElement.getAttribute("hx-target")).prepend(doing);
  }, MOMENT_MS);
});
/* Before the answer is put in its place: what stands in the way there might be made a part of it. */
for (const end of ["htmx:after:request", "htmx:finally:request"]) {
  document.addEventListener(end, ({ detail: { ctx } }) => {
    if (!whatIsDone(ctx)) return;
    clearTimeout(begins);
    doing.remove();
  });
}

/* The session has ended: back to this page by signing in, where what was being written is there again. It is kept in
   this tab alone, and only until then. */
const kept = () => `written at ${location.pathname}${location.search}`;

function signIn() {
  const written = [...document.querySelectorAll("textarea[id]")].filter((field) => field.value !== field.defaultValue);
  if (written.length) sessionStorage.setItem(kept(), JSON.stringify(written.map(({ id, value }) => [id, value])));
  const home = new URL(document.querySelector(".brand").href).pathname;
  const next = `/${location.pathname.slice(home.length)}${location.search}`;
  location.assign(`${home}ui/sign-in?next=${encodeURIComponent(next)}`);
}

/* Somebody signed in again in another tab. What this page shows of that, and proves its changes with, is taken from a
   fresh one, and nothing that is being written is lost. The change itself is for whoever it is now to ask for. */
async function renew(ctx) {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  const fresh = answer?.ok && new DOMParser().parseFromString(await answer.text(), "text/html");
  const secret = fresh && fresh.body.getAttribute("hx-headers:inherited");
  if (!secret) return failed(ctx, detailOf(ctx));
  document.body.setAttribute("hx-headers:inherited", secret);
  document.querySelector(".sign-out input").value = fresh.querySelector(".sign-out input").value;
  document.getElementById("who").replaceWith(fresh.getElementById("who"));
  const who = document.querySelector("#who span")?.textContent;
  failed(ctx, `${who} has signed in here since this page was loaded, so nothing was changed. Try again: it works now.`);
}

for (const [id, value] of JSON.parse(sessionStorage.getItem(kept()) ?? "[]")) {
  const field = document.getElementById(id);
  if (!field) continue;
  field.value = value;
  field.closest("details")?.setAttribute("open", "");
  sessionStorage.removeItem(kept());
}
document.querySelector(".sign-out")?.addEventListener("submit", () => sessionStorage.clear());

/* A button that is disabled while its request runs loses the focus: it has it again, unless someone went on. */
document.addEventListener("htmx:finally:request", ({ detail: { ctx } }) => {
  queueMicrotask(() => {
    if (isAct(ctx) && document.activeElement === document.body) ctx.focused?.focus({ preventScroll: true });
  });
  if (isAct(ctx) && ctx.request.method !== "GET") left = ctx.focused;
});

/* A button that is gone, or done for good, leaves the focus to what says how things are now: who goes on from there
   is not at the top of the page. A browser takes the focus from a disabled button late, or never. */
let left = null;
document.addEventListener("htmx:after:swap", () => {
  requestAnimationFrame(() => setTimeout(() => {
    const isLost = [document.body, left].includes(document.activeElement);
    if (!left || !isLost || (left.isConnected && !left.disabled)) return;
    (document.getElementById("meta") ?? main()).focus({ preventScroll: true });
    left = null;
  }));
});
for (const act of ["pointerdown", "keydown"]) document.addEventListener(act, () => (left = null));

document.addEventListener("htmx:response:error", ({ detail: { ctx } }) => {
  const isShown = ctx.sourceElement.hasAttribute(`hx-status:${ctx.response.status}`); // the answer itself says why
  if (ctx.response.status === 401) signIn();
  else if (ctx.response.status === 403 && problemOf(ctx).type === "/problems/stale-page") renew(ctx);
  else if (!isShown) failed(ctx, detailOf(ctx));
});
document.addEventListener("htmx:error", ({ detail: { ctx } }) => {
  if (ctx) failed(ctx, "No connection to the service");
});

function failed(ctx, text) {
  if (isAct(ctx)) {
    refuse(text);
    if (ctx.request.method !== "GET") htmx.trigger(document.body, "refresh"); // what is shown may be why
  } else if (isStream(ctx.sourceElement)) {
    say("Connection lost; trying again");
    setTimeout(() => htmx.trigger(ctx.sourceElement, "reconnect"), 5000);
  } else if (ctx.sourceElement === main()) {
    const [reason] = text.split(";", 1);
    say(`${reason[0].toUpperCase()}${reason.slice(1)}; trying again`);
  }
}

/* <input type="checkbox" data-all="NAME"> ticks or clears every box of that name in its form. */
document.addEventListener("change", ({ target }) => {
  const name = target.dataset?.all;
  if (name) target.form.querySelectorAll(`input[name="${name}"]`).forEach((box) => (box.checked = target.checked));
});

/* <button data-copy="ID"> copies the text of that element. Browsers give no clipboard to a page that came by plain
   HTTP from another machine: there their old command copies what is selected, or at least the text is selected. */
async function copy(source) {
  try {
    await navigator.clipboard.writeText(source.value ?? source.textContent);
    return true;
  } catch {
    if (source.select) source.select();
    else getSelection().selectAllChildren(source);
    return document.execCommand("copy");
  }
}

document.addEventListener("click", async ({ target }) => {
  const button = target.closest("button[data-copy]");
  if (!button) return;
  const shown = button.firstChild; // beside what it says to those alone who do not see what it stands by
  const said = (await copy(document.getElementById(button.dataset.copy))) ? "Copied" : "Selected";
  shown.data = document.getElementById("said").textContent = said;
  setTimeout(() => {
    shown.data = "Copy";
    document.getElementById("said").textContent = "";
  }, 1500);
});

/* <button data-line="12"> selects that line of the text that is edited. */
document.addEventListener("click", ({ target }) => {
  const line = Number(target.closest("button[data-line]")?.dataset.line);
  if (!line) return;
  const editor = document.getElementById("yaml");
  const lines = editor.value.split("\n");
  const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  editor.focus();
  editor.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
  editor.scrollTop = (line - 4) * (editor.scrollHeight / lines.length);
});
