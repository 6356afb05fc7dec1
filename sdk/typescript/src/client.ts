/** The session of one end user: sign-in, calls with refresh, step-up, sign-out, forgotten password. */

import createClient, { type Client } from "openapi-fetch";
import { checkOrigin, checkedUrl, guarded, originsOf } from "./addresses.js";
import { ApiError, InvalidResponse, SignedOut, checkFields, checked, isTokenRejected, jsonOf } from "./errors.js";
import type { paths } from "./schema.js";
import { MemoryStorage, type TokenStorage, type Tokens } from "./storage.js";

/** Milliseconds before its end in which an access token is no longer used. */
const LEEWAY = 10_000;

export interface ClientOptions {
  /** The address of the platform. */
  baseUrl: string;
  tenantId: string;
  clientId: string;
  /** Of a confidential client; never in a browser. */
  clientSecret?: string;
  storage?: TokenStorage;
  /** Your own APIs that `fetch` sends the token to, besides the platform. They can act as the user at the platform too. */
  origins?: readonly string[];
  /** Called when the platform has ended the session. */
  onSignedOut?: () => void;
  fetch?: typeof globalThis.fetch;
}

export type Method = "webauthn" | "totp" | "sms" | "backup_code";
/** `response` is the browser's response to the options of a passkey. */
export type Proof =
  | { password: string }
  | { code: string }
  | { backup_code: string }
  | { sms_code: string }
  | { response: object };

/** A response that completes a sign-in. */
export interface TokenResponse {
  access_token: string;
  refresh_token: string;
  expires_in: number;
}

interface WaitingResponse {
  mfa_required: true;
  mfa_token: string;
  methods: Method[];
  expires_in: number;
  enrollment_ticket?: string;
}

/**
 * Signs one end user in and calls the platform with the user's tokens.
 *
 * An access token that has expired or is rejected is refreshed once, however many calls wait for it; they all use the
 * successor. If the platform rejects the refresh token, the tokens are removed, `onSignedOut` is called (unless another
 * sign-in has replaced them) and the calls throw SignedOut.
 */
export class IdentityClient {
  readonly baseUrl: string;
  readonly tenantId: string;
  readonly clientId: string;
  /**
   * Typed calls by path as the user: `const { data } = await client.api.GET("/authmgr/profile")`. They throw ApiError,
   * StepUpRequired and SignedOut, so `data` is there if the operation returns a body.
   */
  readonly api: Client<paths>;
  readonly #storage: TokenStorage;
  readonly #secret: { client_secret?: string };
  readonly #onSignedOut: () => void;
  readonly #send: typeof globalThis.fetch;
  readonly #origins: ReadonlySet<string>;
  #refreshing: Promise<Tokens> | undefined;
  /** The last of the changes of the storage, which are made one after another. */
  #changes: Promise<unknown> = Promise.resolve();

  constructor(options: ClientOptions) {
    this.baseUrl = checkedUrl("baseUrl", options.baseUrl).replace(/\/+$/, "");
    this.#origins = originsOf([this.baseUrl, ...(options.origins ?? [])]);
    this.tenantId = options.tenantId;
    this.clientId = options.clientId;
    this.#storage = options.storage ?? new MemoryStorage();
    this.#secret = options.clientSecret === undefined ? {} : { client_secret: options.clientSecret };
    this.#onSignedOut = options.onSignedOut ?? (() => undefined);
    const { fetch } = options;
    this.#send = fetch ? (input, init) => fetch(input, init) : (input, init) => globalThis.fetch(input, init);
    this.api = createClient<paths>({
      baseUrl: this.baseUrl,
      fetch: async (request) => checked(await this.fetch(request, guarded({ signal: request.signal }))),
    });
  }

  // --- Signing in ---

  /** Sign in by password. Return undefined if the user is signed in, or the second step that is missing. */
  async signIn(email: string, password: string): Promise<SecondStep | undefined> {
    const body = { client_id: this.clientId, tenant_id: this.tenantId, email, password, ...this.#secret };
    const said = await this.postPublicly<WaitingResponse | (TokenResponse & { mfa_required: false })>(
      "/uflow/auth/enduser/login",
      body,
    );
    if ((said as Partial<typeof said> | null)?.mfa_required) return new SecondStep(this, email, said as WaitingResponse);
    await this.accept(said as TokenResponse);
    return undefined;
  }

  /** Return options for a sign-in by passkey alone. In a browser, `signInWithPasskey` of `/browser` does it all. */
  passkeyOptions(): Promise<object> {
    const body = { tenant_id: this.tenantId, client_id: this.clientId };
    return this.postPublicly("/webauthn/enduser/beginAuthentication", body);
  }

  /** Sign in with the browser's response to `passkeyOptions`. */
  async signInWithPasskey(response: object): Promise<void> {
    const body = { tenant_id: this.tenantId, response, ...this.#secret };
    await this.accept(await this.postPublicly("/webauthn/enduser/finishAuthentication", body));
  }

  /** Store the tokens of any response that completes a sign-in. Throws InvalidResponse. */
  async accept(response: TokenResponse): Promise<void> {
    const tokens = tokensOf(response);
    await this.#exclusively(() => this.#change(() => this.#storage.save(tokens)));
  }

  /** Have a link for a new password mailed. The response is the same for unknown users. */
  async forgotPassword(email: string): Promise<void> {
    await this.postPublicly("/uflow/auth/enduser/password/forgot", { email, client_id: this.clientId });
  }

  /** Set a new password with the token of the mail. Every session of the user ends. */
  async resetPassword(token: string, password: string): Promise<void> {
    await this.postPublicly("/uflow/auth/enduser/password/reset", { token, password });
  }

  // --- Signed in ---

  async isSignedIn(): Promise<boolean> {
    return (await this.#storage.load()) !== undefined;
  }

  /**
   * `fetch` with the user's access token, refreshed if needed; for the platform and the `origins` of the options. Throws
   * IdentityError for any other address.
   */
  async fetch(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
    const request = new Request(input, init);
    checkOrigin(request.url, this.#origins);
    const tokens = await this.#validTokens();
    const response = await this.#authorized(request.clone(), tokens);
    if (!isTokenRejected(response)) return response;
    return this.#authorized(request, await this.#validTokens(tokens.accessToken));
  }

  /** Return a valid access token, refreshed if needed. Throws SignedOut. */
  async accessToken(): Promise<string> {
    return (await this.#validTokens()).accessToken;
  }

  /**
   * Prove the session again. Return a proof token: it works once, within five minutes, where a call needs a proof in
   * its body.
   */
  async stepUp(proof: Proof): Promise<string> {
    const said = await this.#post<{ access_token: string; expires_in: number; proof_token: string }>(
      "/authmgr/step-up",
      proof,
    );
    checkFields(said, "access_token", "proof_token");
    await this.#exclusively(() =>
      this.#change(async () => {
        const tokens = await this.#storage.load();
        if (!tokens) throw new SignedOut("The session has ended meanwhile.");
        await this.#storage.save(tokensOf({ ...said, refresh_token: tokens.refreshToken }));
      }),
    );
    return said.proof_token;
  }

  /** Return options for a passkey as the proof `response` of `stepUp`. */
  stepUpOptions(): Promise<object> {
    return this.#post("/authmgr/step-up/options", {});
  }

  /** End the session, or every session of the user. The tokens are removed even if the platform is unreachable. */
  async signOut(options: { everywhere?: boolean } = {}): Promise<void> {
    try {
      await this.#post("/authmgr/logout", { all: options.everywhere ?? false });
    } catch (error) {
      if (!(error instanceof SignedOut)) throw error;
    } finally {
      await this.#exclusively(() => this.#change(() => this.#storage.save(undefined)));
    }
  }

  // --- Mechanism ---

  /** Post JSON without an access token. Throws ApiError. */
  async postPublicly<T>(path: string, body: object, headers: Record<string, string> = {}): Promise<T> {
    return jsonOf(await this.#send(this.baseUrl + path, jsonPost(body, headers)));
  }

  async #post<T>(path: string, body: object): Promise<T> {
    return jsonOf(await this.fetch(this.baseUrl + path, jsonPost(body)));
  }

  #authorized(request: Request, tokens: Tokens): Promise<Response> {
    request.headers.set("Authorization", `Bearer ${tokens.accessToken}`);
    return this.#send(request);
  }

  /** Read and replace the tokens; nothing else in this client does so meanwhile. Always inside `#exclusively`. */
  #change<T>(work: () => T | Promise<T>): Promise<T> {
    const done = this.#changes.then(work);
    this.#changes = done.catch(() => undefined);
    return done;
  }

  #exclusively<T>(work: () => Promise<T>): Promise<T> {
    return this.#storage.exclusively ? this.#storage.exclusively(work) : work();
  }

  /** Return the stored tokens, refreshed if they have expired or the platform has `rejected` the access token. */
  async #validTokens(rejected?: string): Promise<Tokens> {
    const tokens = await this.#storage.load();
    if (tokens && isUsable(tokens, rejected)) return tokens;
    let isEnded = false;
    const ended = (): void => {
      isEnded = true;
    };
    this.#refreshing ??= this.#exclusively(() => this.#refreshed(rejected, ended)).finally(() => {
      this.#refreshing = undefined;
      // After the refresh, so that the callback may use this client.
      if (isEnded) this.#onSignedOut();
    });
    return this.#refreshing;
  }

  async #refreshed(rejected: string | undefined, ended: () => void): Promise<Tokens> {
    // Another tab, or an earlier call, may have refreshed them meanwhile.
    const tokens = await this.#storage.load();
    if (!tokens) throw new SignedOut("No user is signed in.");
    if (isUsable(tokens, rejected)) return tokens;
    const form = { grant_type: "refresh_token", refresh_token: tokens.refreshToken, client_id: this.clientId };
    const body = new URLSearchParams({ ...form, ...this.#secret });
    let said: Omit<TokenResponse, "refresh_token"> & { refresh_token?: string };
    try {
      said = await jsonOf(await this.#send(`${this.baseUrl}/authmgr/token`, guarded({ method: "POST", body })));
    } catch (error) {
      // 429, 503, a network error, a rotated client secret, a suspended tenant: the session may still be valid.
      if (!(error instanceof ApiError) || error.code !== "invalid_grant") throw error;
      if (await this.#replace(tokens, undefined)) ended();
      throw new SignedOut(error.message, { cause: error });
    }
    const fresh = tokensOf({ refresh_token: tokens.refreshToken, ...said });
    await this.#replace(tokens, fresh);
    return fresh;
  }

  /** Store the successor, unless the user has signed out or in again meanwhile; return whether it was stored. */
  #replace(tokens: Tokens, fresh: Tokens | undefined): Promise<boolean> {
    return this.#change(async () => {
      const current = await this.#storage.load();
      if (current?.refreshToken !== tokens.refreshToken) return false;
      await this.#storage.save(fresh);
      return true;
    });
  }
}

/** A sign-in that waits for a factor; one of the methods completes it. */
export class SecondStep {
  readonly client: IdentityClient;
  readonly email: string;
  /**
   * The possible second steps. Empty if the user must enroll a factor first: send `enrollmentTicket` and `mfaToken` with
   * the calls that enroll, and give the last response to `client.accept`.
   */
  readonly methods: readonly Method[];
  /** Seconds in which the sign-in can be completed. */
  readonly expiresIn: number;
  // Private, so that no log of this object shows them.
  readonly #mfaToken: string;
  readonly #enrollmentTicket: string | undefined;

  constructor(client: IdentityClient, email: string, said: WaitingResponse) {
    checkFields(said, "mfa_token");
    if (!Array.isArray(said.methods)) throw new InvalidResponse("The response has no valid `methods`.");
    this.client = client;
    this.email = email;
    this.#mfaToken = said.mfa_token;
    this.methods = said.methods;
    this.expiresIn = said.expires_in;
    this.#enrollmentTicket = said.enrollment_ticket;
  }

  get mfaToken(): string {
    return this.#mfaToken;
  }

  get enrollmentTicket(): string | undefined {
    return this.#enrollmentTicket;
  }

  /** Complete the sign-in with a code of the authenticator app. */
  totp(code: string): Promise<void> {
    return this.#complete("/webauthn/totp/verifyLogin", { code });
  }

  /** Complete the sign-in with a backup code, which works once. */
  backupCode(code: string): Promise<void> {
    return this.#complete("/webauthn/totp/verifyLogin", { backup_code: code });
  }

  /** Have a code sent to the user's phone. */
  async sendSms(): Promise<void> {
    await this.#post("/webauthn/sms/requestCode", { client_id: this.client.clientId });
  }

  /** Complete the sign-in with the code that was sent. */
  sms(code: string): Promise<void> {
    return this.#complete("/webauthn/sms/verify", { client_id: this.client.clientId, code });
  }

  /** Return options for a passkey. In a browser, `completeWithPasskey` of `/browser` does it all. */
  passkeyOptions(): Promise<object> {
    return this.#post("/webauthn/enduser/beginAuthentication", {});
  }

  /** Complete the sign-in with the browser's response to `passkeyOptions`. */
  passkey(response: object): Promise<void> {
    return this.#complete("/webauthn/enduser/finishAuthentication", { response });
  }

  #post<T>(path: string, fields: object): Promise<T> {
    const named = { tenant_id: this.client.tenantId, email: this.email, mfa_token: this.mfaToken };
    return this.client.postPublicly<T>(path, { ...named, ...fields });
  }

  async #complete(path: string, fields: object): Promise<void> {
    await this.client.accept(await this.#post<TokenResponse>(path, fields));
  }
}

function isUsable(tokens: Tokens, rejected: string | undefined): boolean {
  return tokens.accessToken !== rejected && tokens.expiresAt - LEEWAY > Date.now();
}

function tokensOf(response: TokenResponse): Tokens {
  checkFields(response, "access_token", "refresh_token");
  return {
    accessToken: response.access_token,
    refreshToken: response.refresh_token,
    expiresAt: Date.now() + response.expires_in * 1000,
  };
}

function jsonPost(body: object, headers: Record<string, string> = {}): RequestInit {
  const type = { "Content-Type": "application/json" };
  return guarded({ method: "POST", headers: { ...type, ...headers }, body: JSON.stringify(body) });
}
