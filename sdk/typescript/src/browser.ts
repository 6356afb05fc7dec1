/** Pages in a browser: passkeys, and tokens in the storage of the page. */

import {
  type PublicKeyCredentialCreationOptionsJSON,
  type PublicKeyCredentialRequestOptionsJSON,
  startAuthentication,
  startRegistration,
} from "@simplewebauthn/browser";
import { guarded } from "./addresses.js";
import type { IdentityClient, SecondStep, TokenResponse } from "./client.js";
import { jsonOf } from "./errors.js";
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

/** What the request itself proves when the user's session enrolls a passkey. */
export interface SessionProof {
  /** For the first factor. */
  current_password?: string;
  /** Of `stepUp`; by a factor of a user who has one. */
  proof_token?: string;
  code?: string;
  backup_code?: string;
  sms_code?: string;
}

/**
 * Enroll a passkey. The proof is the user's session together with `session`, a sign-in that requires a factor first (`step`,
 * which this completes), or an enrollment ticket.
 */
export async function registerPasskey(
  client: IdentityClient,
  email: string,
  proof: { session?: SessionProof; step?: SecondStep; ticket?: string } = {},
): Promise<void> {
  const ticket = proof.ticket ?? proof.step?.enrollmentTicket;
  const post = async <T>(path: string, fields: object): Promise<T> => {
    const body = { tenant_id: client.tenantId, email, ...fields };
    if (ticket !== undefined) return client.postPublicly(path, body, { "X-Enrollment-Ticket": ticket });
    const init = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    return jsonOf<T>(await client.fetch(client.baseUrl + path, guarded(init)));
  };
  const options = await post<PublicKeyCredentialCreationOptionsJSON>("/webauthn/enduser/beginRegistration", {});
  const credential = await startRegistration({ optionsJSON: options });
  const waiting = proof.step ? { mfa_token: proof.step.mfaToken } : {};
  const sent = { credential, ...waiting, ...proof.session };
  const done = await post<Partial<TokenResponse>>("/webauthn/enduser/finishRegistration", sent);
  if (proof.step) await client.accept(done as TokenResponse);
}

/** Milliseconds in which the page before this one in the same tab, such as before a reload, must have ended. */
const PAGE_ENDS = 1000;
/** What this page has claimed in `sessionStorage`, by key. */
const claims = new Map<string, Promise<void>>();

/**
 * Remove tokens that were copied with the tab: "Duplicate tab" and `window.open` copy `sessionStorage`, and two tabs that
 * refresh the same session end it. The tab holds a lock with an id, and a copy cannot get it.
 */
async function claim(key: string): Promise<void> {
  // A frame shares the storage of its tab. Pages that are not served over https have no locks.
  if (window.top !== window || !("locks" in navigator)) return;
  const name = `${key}-tab`;
  const hold = (id: string, signal?: AbortSignal): Promise<boolean> =>
    new Promise((resolve) => {
      const held = new Promise<void>(() => undefined);
      const done = navigator.locks.request(`${name}-${id}`, signal ? { signal } : {}, () => {
        resolve(true);
        return held;
      });
      done.catch(() => resolve(false));
    });
  const known = sessionStorage.getItem(name);
  if (known !== null && (await hold(known, AbortSignal.timeout(PAGE_ENDS)))) return;
  if (known !== null) sessionStorage.removeItem(key);
  const id = crypto.randomUUID();
  sessionStorage.setItem(name, id);
  await hold(id);
}

const isTokens = (value: unknown): value is Tokens => {
  const { accessToken, refreshToken, expiresAt } = (value ?? {}) as Record<string, unknown>;
  return typeof accessToken === "string" && typeof refreshToken === "string" && Number.isFinite(expiresAt);
};

/**
 * Keep tokens in `sessionStorage` (default: this tab, until it is closed; a duplicated tab is signed out) or `localStorage`
 * (all tabs, which refresh one after another). Every script of the page can read them: use a Content-Security-Policy.
 */
export function webStorage(place: Storage = sessionStorage, key = "identity-platform-tokens"): TokenStorage {
  const ready = async (): Promise<void> => {
    if (place !== sessionStorage) return;
    const claimed = claims.get(key) ?? claim(key);
    claims.set(key, claimed);
    await claimed;
  };
  void ready(); // before a copy of the tab does
  return {
    async load() {
      await ready();
      try {
        const said: unknown = JSON.parse(place.getItem(key) ?? "null");
        return isTokens(said) ? said : undefined;
      } catch {
        return undefined; // not ours: signed out
      }
    },
    async save(tokens) {
      await ready();
      if (tokens) place.setItem(key, JSON.stringify(tokens));
      else place.removeItem(key);
    },
    // Pages that are not served over https have no locks; the platform then gives both tabs the same successor.
    exclusively: async <T>(work: () => Promise<T>): Promise<T> =>
      "locks" in navigator ? navigator.locks.request(key, async () => work()) : work(),
  };
}
