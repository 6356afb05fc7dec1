/** Pages in a browser: passkeys, and tokens in the storage of the page. */

import {
  type PublicKeyCredentialCreationOptionsJSON,
  type PublicKeyCredentialRequestOptionsJSON,
  startAuthentication,
  startRegistration,
} from "@simplewebauthn/browser";
import type { IdentityClient, SecondStep, TokenResponse } from "./client.js";
import { checked } from "./errors.js";
import type { TokenStorage, Tokens } from "./storage.js";

export { WebAuthnError, browserSupportsWebAuthn } from "@simplewebauthn/browser";

const signed = (options: object) =>
  startAuthentication({ optionsJSON: options as PublicKeyCredentialRequestOptionsJSON });

/** Sign in with a passkey alone; the browser offers those of the domain. */
export async function signInWithPasskey(client: IdentityClient): Promise<void> {
  await client.signInWithPasskey(await signed(await client.passkeyOptions()));
}

/** Complete a sign-in with a passkey of the user. */
export async function completeWithPasskey(step: SecondStep): Promise<void> {
  await step.passkey(await signed(await step.passkeyOptions()));
}

/** Prove the session again with a passkey. Return a proof token. */
export async function stepUpWithPasskey(client: IdentityClient): Promise<string> {
  return client.stepUp({ response: await signed(await client.stepUpOptions()) });
}

/**
 * Enroll a passkey. The proof is the user's session, a sign-in that requires a factor first (`step`, which this completes),
 * or an enrollment ticket.
 */
export async function registerPasskey(
  client: IdentityClient,
  email: string,
  proof: { step?: SecondStep; ticket?: string } = {},
): Promise<void> {
  const ticket = proof.ticket ?? proof.step?.enrollmentTicket;
  const post = async <T>(path: string, fields: object): Promise<T> => {
    const body = { tenant_id: client.tenantId, email, ...fields };
    if (ticket !== undefined) return client.postPublicly(path, body, { "X-Enrollment-Ticket": ticket });
    const init = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    return (await (await checked(await client.fetch(client.baseUrl + path, init))).json()) as T;
  };
  const options = await post<PublicKeyCredentialCreationOptionsJSON>("/webauthn/enduser/beginRegistration", {});
  const credential = await startRegistration({ optionsJSON: options });
  const waiting = proof.step ? { mfa_token: proof.step.mfaToken } : {};
  const done = await post<Partial<TokenResponse>>("/webauthn/enduser/finishRegistration", { credential, ...waiting });
  if (proof.step) await client.accept(done as TokenResponse);
}

/**
 * Keep tokens in `sessionStorage` (default: this tab, until it is closed) or `localStorage` (all tabs, which refresh one
 * after another). Every script of the page can read them: use a Content-Security-Policy.
 */
export function webStorage(place: Storage = sessionStorage, key = "identity-platform-tokens"): TokenStorage {
  return {
    load() {
      const text = place.getItem(key);
      return text === null ? undefined : (JSON.parse(text) as Tokens);
    },
    save(tokens) {
      if (tokens) place.setItem(key, JSON.stringify(tokens));
      else place.removeItem(key);
    },
    // Pages that are not served over https have no locks; the platform then gives both tabs the same successor.
    exclusively: async <T>(work: () => Promise<T>): Promise<T> =>
      "locks" in navigator ? navigator.locks.request(key, async () => work()) : work(),
  };
}
