// The demo page: which part is shown, and which call belongs to which button.

import { call, get, post, useToken } from "./api.js";
import * as passkeys from "./passkeys.js";

const { tenantId: tenant_id, clientId: client_id, rpId } = document.body.dataset;
const part = (id) => document.getElementById(id);

// Who signs in or is signed in, and the ticket of a login that waits for its second step.
let person = null;
let mfa_token = null;
// Enrollment ticket of a sign-in that must enroll first, or an enrollment pass.
let ticket = null;
// The action that waits for step-up. It is called with the proof token.
let waiting = null;

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
      // RFC 9470: the session has not proven enough. Step up, then do it again.
      if (problem.code === "insufficient_user_authentication" && claimsOfSession) {
        await askForProof((proof) => act(fields, proof)).catch((failed) => say("problem", failed.message));
        return;
      }
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
  for (const name of ["signed-out", "second-step", "enroll-first", "signed-in"]) part(name).hidden = name !== id;
  for (const name of ["confirm-totp", "backup-codes", "confirm-sms"]) part(name).hidden = true;
  // Setting up an authenticator app looks the same with and without a session.
  const place = id === "enroll-first" ? "enroll-first-totp" : "totp";
  part(place).append(part("set-up-totp"));
  part({ "signed-out": "sign-in-heading" }[id] ?? `${id}-heading`).focus();
}

const claims = (jwt) => JSON.parse(new TextDecoder().decode(
  Uint8Array.from(atob(jwt.split(".")[1].replace(/-/g, "+").replace(/_/g, "/")), (char) => char.charCodeAt(0))));

let claimsOfSession = null;

function keep(access_token) {
  useToken(access_token);
  claimsOfSession = access_token ? claims(access_token) : null;
  if (claimsOfSession) part("how").textContent = methodsOf(claimsOfSession);
}

const methodsOf = ({ amr }) => amr.map((name) => METHODS[name]).filter(Boolean).join(" and ");

async function signedIn(answer) {
  keep(answer.access_token);
  mfa_token = ticket = waiting = null;
  const said = claimsOfSession;
  const user = await get(`/uflow/user/enduser/${tenant_id}/${said.sub}`);
  person = { email: user.email };
  part("who").textContent = user.name ? `${user.name} (${user.email})` : user.email;
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
  // The request itself carries a proof, so that a stolen access token removes nothing.
  queueMicrotask(() => on(remove.id, "click", () => askForProof(async (proof_token) => {
    await call("DELETE", `/webauthn/factors/${factor.id}`, { proof_token });
    await listFactors();
    say("status", "The factor is removed.");
  })));
  return item;
}

async function login({ email, password }) {
  const answer = await post("/uflow/auth/enduser/login", { client_id, tenant_id, email, password });
  person = { email };
  if (!answer.mfa_required) return signedIn(answer);
  mfa_token = answer.mfa_token;
  if (answer.enrollment_required) return enrollFirst(answer.enrollment_ticket, "The password was right. Add a second factor to complete the sign-in.");
  offer(answer.methods, "One more step", "The password was right. Prove that it is you with one of your factors.");
}

function offer(methods, heading, text) {
  part("second-step-heading").textContent = heading;
  part("second-step-text").textContent = text;
  for (const form of document.querySelectorAll("[data-method]")) form.hidden = !methods.includes(form.dataset.method);
  show("second-step");
}

function enrollFirst(proof, text) {
  ticket = proof;
  part("enroll-first-text").textContent = text;
  show("enroll-first");
}

// --- step-up ---------------------------------------------------------------------------------------------------------

async function askForProof(action) {
  const { methods } = await get("/webauthn/factors");
  waiting = action;
  offer(methods.length ? methods : ["password"], "Confirm that it is you", "This needs a proof from the last 15 minutes.");
}

// A proof by the user: of the second step of a login, or of step-up.
async function proven(loginStep, stepUp) {
  if (!waiting) return signedIn(await loginStep());
  let raised;
  try {
    raised = await stepUp();
  } catch (problem) {
    if (problem.code !== "proof_too_new") throw problem;
    // It was added after the sign-in: once something older has been verified, it counts.
    const { methods } = await get("/webauthn/factors");
    return offer([...methods, "password"], "Use something older first", problem.message);
  }
  const action = waiting;
  waiting = null;
  keep(raised.access_token);
  if (claimsOfSession.acr === "aal1" && (await get("/webauthn/factors")).methods.length) return askForProof(action);
  show("signed-in");
  await action(raised.proof_token);
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
const raise = (proof) => () => post("/authmgr/step-up", proof);

on("second-password", "submit", ({ password }) => proven(null, raise({ password })));
on("second-passkey", "click", () =>
  proven(() => passkeys.completeLogin({ tenant_id, email: person.email, mfa_token }), passkeys.stepUp));
on("second-totp", "submit", ({ code }) =>
  proven(() => post("/webauthn/totp/verifyLogin", { ...whom(), code, mfa_token }), raise({ code })));
on("second-backup_code", "submit", ({ backup_code }) =>
  proven(() => post("/webauthn/totp/verifyLogin", { ...whom(), backup_code, mfa_token }), raise({ backup_code })));
on("second-sms-send", "click", async () => {
  const sent = await post("/webauthn/sms/requestCode", { ...whom(), ...(waiting ? {} : { mfa_token }) });
  say("status", `A code is on its way to ${sent.phone_display}; it is good for ${sent.expires_in_minutes} minutes.`);
});
on("second-sms", "submit", ({ code }) =>
  proven(() => post("/webauthn/sms/verify", { ...whom(), code, mfa_token }), raise({ sms_code: code })));
on("give-up", "click", async () => {
  show(waiting ? "signed-in" : "signed-out");
  waiting = null;
});

// --- enrolling before there is a session ------------------------------------------------------------------------------

on("use-pass", "submit", async ({ email, pass }) => {
  person = { email };
  mfa_token = null;
  enrollFirst(pass, "The pass is valid for one factor.");
});

// A waiting login is completed by the new factor; with a pass the user signs in afterwards.
async function enrolled(answer, text) {
  if (answer.access_token) return signedIn(answer);
  ticket = null;
  show("signed-out");
  say("status", `${text} Sign in with your password and the new factor.`);
}

on("first-passkey", "click", async () =>
  enrolled(await passkeys.enroll({ tenant_id, email: person.email, ticket, mfa_token }), "The passkey is enrolled."));
on("leave", "click", async () => {
  ticket = mfa_token = null;
  show("signed-out");
});

// --- signed in -------------------------------------------------------------------------------------------------------

on("sign-out", "click", async () => {
  await post("/authmgr/logout", {});
  keep(null);
  person = null;
  show("signed-out");
  say("status", "Signed out.");
});

// With a session the request that enrolls carries a proof, so that a stolen access token enrolls nothing.
on("add-passkey", "click", () => askForProof(async (proof_token) => {
  await passkeys.enroll({ tenant_id, email: person.email, proof_token });
  await listFactors();
  say("status", "The passkey is enrolled.");
}));

let secret = null;
// Of the step-up before a factor is added; it is good for five minutes.
let proofOfSession = null;

on("begin-totp", "click", () => (ticket ? beginTotp() : askForProof(beginTotp)));

async function beginTotp(proof_token) {
  proofOfSession = proof_token;
  const setup = await post("/webauthn/totp/beginSetup", whom(), ticket);
  secret = setup.secret;
  part("totp-qr").src = `data:image/png;base64,${setup.qr_code}`;
  part("totp-secret").textContent = setup.manual_entry;
  part("confirm-totp").hidden = false;
  part("confirm-totp").elements.code.focus();
}

on("confirm-totp", "submit", async ({ code }) => {
  const proof = ticket ? {} : { proof_token: proofOfSession };
  const body = { ...whom(), secret, code, ...proof, ...(mfa_token ? { mfa_token } : {}) };
  const answer = await post("/webauthn/totp/confirmSetup", body, ticket);
  secret = null;
  part("confirm-totp").hidden = true;
  part("totp-qr").removeAttribute("src");
  part("totp-secret").textContent = "";
  if (ticket) await enrolled(answer, "The authenticator app is enrolled.");
  else await listFactors();
  part("backup-codes").hidden = false;
  part("backup-codes").querySelector("ul").replaceChildren(...answer.backup_codes.map((text) => {
    const item = document.createElement("li");
    item.append(Object.assign(document.createElement("code"), { textContent: text }));
    return item;
  }));
  part("backup-codes-heading").focus();
  if (claimsOfSession) say("status", "The authenticator app is enrolled.");
});

let phone_number = null;

on("begin-sms", "submit", (fields) => askForProof(async (proof_token) => {
  const sent = await post("/webauthn/sms/beginSetup", { ...whom(), phone_number: fields.phone_number });
  proofOfSession = proof_token;
  phone_number = fields.phone_number;
  part("confirm-sms").hidden = false;
  part("confirm-sms").elements.code.focus();
  say("status", `A code is on its way to ${sent.phone_display}; it is good for ${sent.expires_in_minutes} minutes.`);
}));

on("confirm-sms", "submit", async ({ code }) => {
  await post("/webauthn/sms/confirmSetup", { ...whom(), phone_number, code, proof_token: proofOfSession });
  part("confirm-sms").hidden = true;
  await listFactors();
  say("status", "The phone is enrolled.");
});

if (location.hostname !== rpId) part("elsewhere").hidden = false;
if (!passkeys.supported) {
  for (const id of ["passkey-sign-in", "second-passkey", "first-passkey", "add-passkey"]) part(id).disabled = true;
  say("problem", "This browser is too old for passkeys, or this page is not a secure context.");
}
