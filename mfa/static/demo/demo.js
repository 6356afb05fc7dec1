// The demo page: which part is shown, and which call belongs to which button.

import { call, get, post, useToken } from "./api.js";
import * as passkeys from "./passkeys.js";

const { tenantId: tenant_id, clientId: client_id, rpId } = document.body.dataset;
const part = (id) => document.getElementById(id);

// Who signs in or is signed in, and the ticket of a login that waits for its second step.
let person = null;
let mfa_token = null;

const METHODS = { pwd: "password", pop: "passkey", otp: "authenticator app or backup code", sms: "code by SMS" };

function say(id, text) {
  for (const name of ["status", "problem"]) {
    part(name).hidden = name !== id || !text;
    part(name).textContent = name === id ? text : "";
  }
}

// Runs what a button or form stands for: one at a time, and what goes wrong is said.
function on(id, kind, act) {
  part(id).addEventListener(kind, async (event) => {
    event.preventDefault();
    const buttons = [...document.querySelectorAll("button")].filter((button) => !button.disabled);
    for (const button of buttons) button.disabled = true;
    const fields = kind === "submit" ? Object.fromEntries(new FormData(event.target)) : {};
    say("status", "");
    try {
      await act(fields);
      if (kind === "submit") event.target.reset();
    } catch (problem) {
      // The browser's own errors: cancelled, timed out, already enrolled on this authenticator.
      const cancelled = problem.name === "NotAllowedError" ? "The passkey was not used: cancelled or timed out." : null;
      const known = problem.name === "InvalidStateError" ? "This authenticator has a passkey of yours already." : null;
      say("problem", cancelled ?? known ?? problem.message);
    } finally {
      for (const button of buttons) button.disabled = false;
    }
  });
}

function show(id) {
  for (const name of ["signed-out", "second-step", "signed-in"]) part(name).hidden = name !== id;
  for (const name of ["confirm-totp", "backup-codes", "confirm-sms"]) part(name).hidden = true;
  part({ "signed-out": "sign-in-heading", "second-step": "second-step-heading", "signed-in": "signed-in-heading" }[id]).focus();
}

const claims = (jwt) => JSON.parse(new TextDecoder().decode(
  Uint8Array.from(atob(jwt.split(".")[1].replace(/-/g, "+").replace(/_/g, "/")), (char) => char.charCodeAt(0))));

async function signedIn(answer) {
  useToken(answer.access_token);
  mfa_token = null;
  const said = claims(answer.access_token);
  const user = await get(`/uflow/user/enduser/${tenant_id}/${said.sub}`);
  person = { email: user.email };
  part("who").textContent = user.name ? `${user.name} (${user.email})` : user.email;
  part("how").textContent = said.amr.map((name) => METHODS[name]).filter(Boolean).join(" and ");
  show("signed-in");
  await listFactors();
}

async function listFactors() {
  const { factors, backup_codes_remaining } = await get("/webauthn/factors");
  part("factors").replaceChildren(...factors.map(factorItem));
  part("no-factors").hidden = factors.length > 0;
  if (backup_codes_remaining) {
    const item = document.createElement("li");
    item.textContent = `${backup_codes_remaining} backup codes left`;
    part("factors").append(item);
  }
}

function factorItem(factor) {
  const item = document.createElement("li");
  const name = document.createElement("span");
  const called = factor.kind === "sms" ? `Phone ${factor.name}` : factor.name;
  name.textContent = `${called}, since ${new Date(factor.created_at).toLocaleDateString()}`;
  const remove = document.createElement("button");
  remove.type = "button";
  remove.className = "quiet";
  remove.id = `remove-${factor.id}`;
  remove.textContent = "Remove";
  remove.setAttribute("aria-label", `Remove ${called}`);
  item.append(name, remove);
  queueMicrotask(() => on(remove.id, "click", async () => {
    await call("DELETE", `/webauthn/factors/${factor.id}`);
    await listFactors();
    say("status", "The factor is removed.");
  }));
  return item;
}

async function login({ email, password }) {
  const answer = await post("/uflow/auth/enduser/login", { client_id, tenant_id, email, password });
  person = { email };
  if (!answer.mfa_required) return signedIn(answer);
  mfa_token = answer.mfa_token;
  for (const form of document.querySelectorAll("[data-method]")) {
    form.hidden = !answer.methods.includes(form.dataset.method);
  }
  show("second-step");
}

// --- signed out ------------------------------------------------------------------------------------------------------

on("register", "submit", async ({ name, email, password }) => {
  await post("/uflow/user/clients/register", { tenant_id, client_id, name, email, password });
  await login({ email, password });
  say("status", "Registered and signed in. Now add a factor.");
});
on("sign-in", "submit", login);
on("passkey-sign-in", "click", async () => signedIn(await passkeys.signIn({ tenant_id, client_id })));

// --- second step -----------------------------------------------------------------------------------------------------

const whom = () => ({ tenant_id, client_id, email: person.email });

on("second-passkey", "click", async () =>
  signedIn(await passkeys.completeLogin({ tenant_id, email: person.email, mfa_token })));
on("second-totp", "submit", async ({ code }) =>
  signedIn(await post("/webauthn/totp/verifyLogin", { ...whom(), code, mfa_token })));
on("second-backup_code", "submit", async ({ backup_code }) =>
  signedIn(await post("/webauthn/totp/verifyLogin", { ...whom(), backup_code, mfa_token })));
on("second-sms-send", "click", async () => {
  const sent = await post("/webauthn/sms/requestCode", { ...whom(), mfa_token });
  say("status", `A code is on its way to ${sent.phone_display}; it is good for ${sent.expires_in_minutes} minutes.`);
});
on("second-sms", "submit", async ({ code }) =>
  signedIn(await post("/webauthn/sms/verify", { ...whom(), code, mfa_token })));
on("give-up", "click", async () => show("signed-out"));

// --- signed in -------------------------------------------------------------------------------------------------------

on("sign-out", "click", async () => {
  await post("/authmgr/logout", {});
  useToken(null);
  person = null;
  show("signed-out");
  say("status", "Signed out.");
});

on("add-passkey", "click", async () => {
  await passkeys.enrol({ tenant_id, email: person.email });
  await listFactors();
  say("status", "The passkey is enrolled.");
});

let secret = null;

on("begin-totp", "click", async () => {
  const setup = await post("/webauthn/totp/beginSetup", whom());
  secret = setup.secret;
  part("totp-qr").src = `data:image/png;base64,${setup.qr_code}`;
  part("totp-secret").textContent = setup.manual_entry;
  part("confirm-totp").hidden = false;
  part("confirm-totp").elements.code.focus();
});

on("confirm-totp", "submit", async ({ code }) => {
  const { backup_codes } = await post("/webauthn/totp/confirmSetup", { ...whom(), secret, code });
  secret = null;
  part("confirm-totp").hidden = true;
  part("totp-qr").removeAttribute("src");
  part("totp-secret").textContent = "";
  part("backup-codes").hidden = false;
  part("backup-codes").querySelector("ul").replaceChildren(...backup_codes.map((text) => {
    const item = document.createElement("li");
    item.append(Object.assign(document.createElement("code"), { textContent: text }));
    return item;
  }));
  part("backup-codes").querySelector("h3").focus();
  await listFactors();
  say("status", "The authenticator app is enrolled.");
});

let phone_number = null;

on("begin-sms", "submit", async (fields) => {
  const sent = await post("/webauthn/sms/beginSetup", { ...whom(), phone_number: fields.phone_number });
  phone_number = fields.phone_number;
  part("confirm-sms").hidden = false;
  part("confirm-sms").elements.code.focus();
  say("status", `A code is on its way to ${sent.phone_display}; it is good for ${sent.expires_in_minutes} minutes.`);
});

on("confirm-sms", "submit", async ({ code }) => {
  await post("/webauthn/sms/confirmSetup", { ...whom(), phone_number, code });
  part("confirm-sms").hidden = true;
  await listFactors();
  say("status", "The phone is enrolled.");
});

if (location.hostname !== rpId) part("elsewhere").hidden = false;
if (!passkeys.supported) {
  for (const id of ["passkey-sign-in", "second-passkey", "add-passkey"]) part(id).disabled = true;
  say("problem", "This browser is too old for passkeys, or this page is not a secure context.");
}
