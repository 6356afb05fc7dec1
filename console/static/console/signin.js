// Passkeys on the console's pages. A form with data-passkey asks the server for options, the browser for a credential,
// and is then sent with it like any other form, so that the page that answers is the same with and without a passkey.

function say(form, text) {
  form.querySelector("[data-said]").textContent = text;
}

async function options(form) {
  const body = new FormData(form);
  body.set("stage", form.dataset.stage);
  const answer = await fetch(form.dataset.options, { method: "POST", body, credentials: "same-origin" });
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.message);
  return said;
}

async function credential(form) {
  const publicKey = await options(form);
  return form.dataset.passkey === "create"
    ? navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(publicKey) })
    : navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(publicKey) });
}

function reason(form, problem) {
  switch (problem.name) {
    case "NotAllowedError":
    case "AbortError":
      return form.dataset.cancelled;
    case "InvalidStateError":
      return form.dataset.known;
    case "SecurityError":
    case "NotSupportedError":
      return form.dataset.unsupported;
    case "TypeError":
    case "SyntaxError":
      return form.dataset.offline;
    default:
      return problem.message;
  }
}

for (const form of document.querySelectorAll("form[data-passkey]")) {
  const field = form.elements.credential;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    // A second click would end the first one's ceremony.
    if (form.dataset.sent) return;
    if (typeof PublicKeyCredential !== "function" || !PublicKeyCredential.parseRequestOptionsFromJSON) {
      say(form, form.dataset.unsupported);
      return;
    }
    form.dataset.sent = "true";
    say(form, form.dataset.waiting);
    try {
      field.value = JSON.stringify(await credential(form));
      field.disabled = false;
      // Not the event's way: that would come here again.
      HTMLFormElement.prototype.submit.call(form);
    } catch (problem) {
      delete form.dataset.sent;
      say(form, reason(form, problem));
    }
  });
}

for (const button of document.querySelectorAll("[data-print]")) {
  button.addEventListener("click", () => window.print());
}

// The frame hides the page until it is ready, and what is hidden takes no focus.
function focusFirst() {
  if (document.activeElement === document.body) document.querySelector("[autofocus]")?.focus();
}
document.addEventListener("alpine:initialized", () => requestAnimationFrame(focusFirst));
requestAnimationFrame(focusFirst);
