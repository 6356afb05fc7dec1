// All that a page needs for passkeys: the server's options go to the browser as they are, its answer goes back as it is.

import { post } from "./api.js";

export const supported =
  typeof PublicKeyCredential === "function" &&
  typeof PublicKeyCredential.parseCreationOptionsFromJSON === "function";

// Enroll: the caller sends a fresh access token and `proof_token` of a step-up, or `ticket`: an enrollment ticket or pass. With
// `mfa_token` the new passkey completes the sign-in that waits for a factor, and the response contains its tokens.
export async function enroll({ tenant_id, email, ticket, mfa_token, proof_token }) {
  const options = await post("/webauthn/enduser/beginRegistration", { tenant_id, email }, ticket);
  const credential = await navigator.credentials.create({
    publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options),
  });
  const proof = { ...(mfa_token ? { mfa_token } : {}), ...(proof_token ? { proof_token } : {}) };
  const body = { tenant_id, email, credential: credential.toJSON(), ...proof };
  return post("/webauthn/enduser/finishRegistration", body, ticket);
}

// Step-up: the signed-in user proves the session again.
export async function stepUp() {
  const options = await post("/authmgr/step-up/options", {});
  const credential = await navigator.credentials.get({
    publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options),
  });
  return post("/authmgr/step-up", { response: credential.toJSON() });
}

// The second step of a login that answered mfa_required: true with an mfa_token.
export async function completeLogin({ tenant_id, email, mfa_token }) {
  const options = await post("/webauthn/enduser/beginAuthentication", { tenant_id, email });
  const credential = await navigator.credentials.get({
    publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options),
  });
  const response = credential.toJSON();
  return post("/webauthn/enduser/finishAuthentication", { tenant_id, email, mfa_token, response });
}

// Passkey sign-in: no address, no password. The authenticator knows who signs in.
export async function signIn({ tenant_id, client_id }) {
  const options = await post("/webauthn/enduser/beginAuthentication", { tenant_id, client_id });
  const credential = await navigator.credentials.get({
    publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options),
  });
  return post("/webauthn/enduser/finishAuthentication", { tenant_id, response: credential.toJSON() });
}
