// The hosted pages work without this script, except for passkeys. It adds passkeys, tokens of mails, local times and visible
// passwords, and sends a form once. (A form that arrives twice all the same gets the first response again.)

const able = typeof PublicKeyCredential === "function" && PublicKeyCredential.parseRequestOptionsFromJSON;

// --- passkeys ---------------------------------------------------------------------------------------------------------

let waiting = null;

async function options(form) {
  const body = new URLSearchParams({form_token: form.elements.form_token.value, stage: form.dataset.stage});
  const answer = await fetch(form.dataset.options, {method: "POST", body, credentials: "same-origin"});
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.message);
  return said;
}

async function credential(form, mediation) {
  // Only one ceremony can run: the one that waits in the field of the address ends when a button is pressed.
  waiting?.abort();
  waiting = new AbortController();
  const signal = waiting.signal;
  const found = await options(form);
  return form.dataset.passkey === "create"
    ? navigator.credentials.create({publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(found), signal})
    : navigator.credentials.get({publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(found), signal, mediation});
}

function send(form, found) {
  form.elements.credential.value = JSON.stringify(found);
  form.elements.credential.disabled = false;
  // Not the event's way: that would ask for a passkey again.
  HTMLFormElement.prototype.submit.call(form);
}

function reason(form, problem) {
  if (problem.name === "NotAllowedError" || problem.name === "AbortError") return form.dataset.cancelled;
  if (problem.name === "InvalidStateError") return form.dataset.known;
  return problem.name === "Error" ? problem.message : form.dataset.failed;
}

async function offer(form) {
  // In the list that the browser shows for the field of the address (WebAuthn Level 3 section 5.1.4).
  if (!(await PublicKeyCredential.isConditionalMediationAvailable?.())) return;
  try {
    send(form, await credential(form, "conditional"));
  } catch {
    // The user has chosen another way.
  }
}

for (const form of able ? document.querySelectorAll("form[data-passkey]") : []) {
  const said = form.querySelector("[data-said]");
  form.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    said.textContent = form.dataset.waiting;
    try {
      send(form, await credential(form, "optional"));
    } catch (problem) {
      said.textContent = reason(form, problem);
    }
  });
  if ("autofill" in form.dataset) offer(form);
}

// --- tokens of mails --------------------------------------------------------------------------------------------------

// Browsers do not send the part after `#`, so no log has the token. Only a click uses it: mail scanners open links too.
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) {
  // Out of the address bar, the history and screenshots.
  history.replaceState(null, "", location.pathname + location.search);
  for (const field of document.querySelectorAll("[data-mailed]")) {
    field.value = token;
    field.closest(".field").hidden = true;
    field.form.querySelector("input:not([type=hidden], [data-mailed])")?.focus();
  }
  for (const part of document.querySelectorAll("[data-with-token]")) part.hidden = false;
  for (const part of document.querySelectorAll("[data-without-token]")) part.hidden = true;
}
// After an error in another field the page has the token already.
for (const field of document.querySelectorAll(".field:not(.wrong) [data-mailed]")) {
  if (field.value) field.closest(".field").hidden = true;
}
// Another link in the same tab changes the fragment only.
addEventListener("hashchange", () => location.reload());
// The same page in another language needs the token too.
for (const link of document.querySelectorAll("[data-language]")) {
  link.addEventListener("click", () => {
    const mailed = document.querySelector("[data-mailed]")?.value;
    if (mailed) link.hash = new URLSearchParams({token: mailed});
  });
}

// --- forms that are sent once ---------------------------------------------------------------------------------------------

// After this time a form may be sent again: its response was a file, or the user has stopped the page from loading.
const AGAIN_MILLISECONDS = 3000;
for (const form of document.querySelectorAll("form:not([data-passkey])")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) event.preventDefault();
    else setTimeout(() => delete form.dataset.sent, AGAIN_MILLISECONDS);
    form.dataset.sent = "true";
  });
}
// The page is shown again from the browser's memory.
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});

// --- times -------------------------------------------------------------------------------------------------------------

// The server does not know the time zone of the browser, and sends times in UTC.
const locale = navigator.languages.find((name) => name.startsWith(document.documentElement.lang)) ?? document.documentElement.lang;
for (const time of document.querySelectorAll("time")) {
  const parts = "day" in time.dataset ? {dateStyle: "long"} : {dateStyle: "long", timeStyle: "short"};
  time.textContent = new Intl.DateTimeFormat(locale, parts).format(new Date(time.dateTime));
}

// --- small things -----------------------------------------------------------------------------------------------------

// The server leaves out invisible characters around an address, but browsers refuse to send the form with them.
for (const field of document.querySelectorAll("input[type=email]")) {
  field.addEventListener("change", () => {
    field.value = field.value.replace(/^[\p{Cf}\p{Zs}]+|[\p{Cf}\p{Zs}]+$/gu, "");
  });
}

for (const field of document.querySelectorAll("[data-show] [data-password]")) {
  const {show, hide} = field.form.dataset;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "link show";
  button.textContent = show;
  button.setAttribute("aria-controls", field.id);
  button.addEventListener("click", () => {
    const hidden = field.type === "password";
    field.type = hidden ? "text" : "password";
    button.textContent = hidden ? hide : show;
  });
  field.after(button);
}

for (const button of document.querySelectorAll("[data-print]")) {
  button.hidden = false;
  button.addEventListener("click", () => print());
}
