/** Servers: verify access tokens (RFC 9068), get tokens of the application itself, read registry credentials. */

import { errors, jwtVerify, type JWTPayload } from "jose";
import { checkOrigin, checkedUrl, guarded, originsOf } from "./addresses.js";
import { AccessDenied, IdentityError, checkFields, isTokenRejected, jsonOf } from "./errors.js";
import { KeysUnavailable, PublishedKeys } from "./keys.js";

export { AccessDenied, ApiError, IdentityError, InvalidResponse } from "./errors.js";

const KINDS: readonly unknown[] = ["operator", "admin", "end_user", "client"];
/** Milliseconds after its start in which a token is not replaced. */
const NEW = 3000;

/** The subject of a verified token. Changes since its issue, such as a removed role, show in the next token. */
export interface Principal {
  readonly id: string;
  readonly kind: "operator" | "admin" | "end_user" | "client";
  readonly tenantId: string | undefined;
  readonly clientId: string | undefined;
  readonly permissions: ReadonlySet<string>;
  readonly claims: JWTPayload;
}

export interface VerifierOptions {
  /** `https://<platform>/t/<slug>` for a tenant's end users and clients. */
  issuer: string;
  /** Default: `identity-api`. */
  audience?: string;
  /** Default: the address in the issuer's metadata (RFC 8414). */
  jwksUri?: string;
  /** Default: `ES256`. */
  algorithms?: readonly string[];
}

/**
 * Verifies the tokens of one issuer with its published keys, cached for five minutes, or 15 while they cannot be fetched; a
 * token with an unknown key causes another fetch, at most every 30 seconds.
 */
export class Verifier {
  readonly #issuer: string;
  readonly #audience: string;
  readonly #algorithms: string[];
  readonly #keys: PublishedKeys;

  constructor(options: VerifierOptions) {
    this.#issuer = checkedUrl("issuer", options.issuer);
    this.#audience = options.audience ?? "identity-api";
    this.#algorithms = [...(options.algorithms ?? ["ES256"])];
    // jose does not verify an audience that is undefined.
    if (typeof this.#audience !== "string" || !this.#audience) throw new TypeError("audience must be a non-empty string.");
    const { jwksUri } = options;
    this.#keys = new PublishedKeys(this.#issuer, jwksUri === undefined ? undefined : checkedUrl("jwksUri", jwksUri));
  }

  /** Verify the header Authorization of a request and require these permissions. Throws AccessDenied. */
  async authorize(authorization: string | undefined, ...permissions: string[]): Promise<Principal> {
    const token = /^bearer +(\S+)$/i.exec(authorization ?? "")?.[1];
    if (token === undefined) {
      const message = "Send a valid access token: `Authorization: Bearer …`.";
      throw new AccessDenied(401, "unauthorized", message, 'Bearer realm="api"');
    }
    const principal = await this.verify(token);
    const missing = permissions.filter((permission) => !principal.permissions.has(permission));
    if (missing.length > 0) {
      const challenge = `Bearer error="insufficient_scope", scope="${permissions.join(" ")}"`;
      const message = `The access token lacks the permission ${missing.join(", ")}.`;
      throw new AccessDenied(403, "insufficient_scope", message, challenge);
    }
    return principal;
  }

  /** Verify a token: signature, type, algorithm, issuer, audience and times. Throws AccessDenied. */
  async verify(token: string): Promise<Principal> {
    const claims = await this.#claims(token);
    const { sub, kind, tenant_id, client_id, permissions } = claims;
    return {
      id: sub as string,
      kind: kind as Principal["kind"],
      tenantId: typeof tenant_id === "string" ? tenant_id : undefined,
      clientId: typeof client_id === "string" ? client_id : undefined,
      permissions: new Set(permissions as string[] | undefined),
      claims,
    };
  }

  async #claims(token: string): Promise<JWTPayload> {
    try {
      const { payload } = await jwtVerify(token, this.#keys.find, {
        issuer: this.#issuer,
        audience: this.#audience,
        algorithms: this.#algorithms,
        typ: "at+jwt",
        requiredClaims: ["sub", "exp", "iat", "jti"],
        clockTolerance: 5,
      });
      if (typeof payload.sub !== "string") throw new errors.JWTInvalid("The token has no subject.");
      // Bound to a key (DPoP), which is not verified here.
      if ("cnf" in payload) throw new errors.JWTInvalid("The token is bound to a key.");
      const { kind, permissions = [] } = payload;
      if (!KINDS.includes(kind)) throw new errors.JWTInvalid("The token is of an unknown kind of subject.");
      if (!Array.isArray(permissions) || !permissions.every((each) => typeof each === "string")) {
        throw new errors.JWTInvalid("The permissions are not a list of strings.");
      }
      return payload;
    } catch (error) {
      if (error instanceof KeysUnavailable) {
        const message = "The keys of the issuer cannot be fetched.";
        throw new AccessDenied(503, "keys_unavailable", message, "", { cause: error });
      }
      const challenge = 'Bearer error="invalid_token"';
      const message = "The access token is invalid or has expired.";
      throw new AccessDenied(401, "invalid_token", message, challenge, { cause: error });
    }
  }
}

export interface ClientCredentialsOptions {
  /** The address of the platform. */
  baseUrl: string;
  clientId: string;
  clientSecret: string;
  scope?: string;
  /** `https://<platform>/t/<slug>`; needed for a `resource`. */
  issuer?: string;
  /** The API that the token is for (RFC 8707), one of the client's `audiences`. Default: the platform's own API. */
  resource?: string;
  /** Where `fetch` sends the token. Default: the platform, or the `resource` if there is one. */
  origins?: readonly string[];
  fetch?: typeof globalThis.fetch;
}

/** Tokens of a confidential client (RFC 6749 section 4.4), requested once and used until they expire. */
export class ClientCredentials {
  readonly #options: ClientCredentialsOptions;
  readonly #send: typeof globalThis.fetch;
  readonly #url: string;
  readonly #origins: ReadonlySet<string>;
  #token: { value: string; starts: number; ends: number } | undefined;
  #asking: Promise<string> | undefined;

  constructor(options: ClientCredentialsOptions) {
    this.#options = options;
    const { fetch, issuer, resource } = options;
    const baseUrl = checkedUrl("baseUrl", options.baseUrl);
    if (resource !== undefined && issuer === undefined) throw new TypeError("A resource needs the issuer.");
    // Only the tenant's own endpoint knows resources.
    const root = issuer === undefined ? `${baseUrl.replace(/\/+$/, "")}/authmgr` : checkedUrl("issuer", issuer);
    this.#url = `${root}/token`;
    this.#origins = originsOf(options.origins ?? [resource ?? baseUrl]);
    this.#send = fetch ? (input, init) => fetch(input, init) : (input, init) => globalThis.fetch(input, init);
  }

  /**
   * Return a token; a new one if the last one expires soon or was `rejected`. One that was issued a few seconds ago is not
   * replaced: an API that rejects it would reject the next one too. Throws ApiError.
   */
  async token(rejected?: string): Promise<string> {
    const known = this.#token;
    const now = Date.now();
    if (known && known.ends > now && (known.value !== rejected || now < known.starts + NEW)) return known.value;
    this.#asking ??= this.#asked().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  /** `fetch` with the token; repeated once with a new one if the token was revoked. Throws IdentityError elsewhere. */
  async fetch(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
    const request = new Request(input, init);
    checkOrigin(request.url, this.#origins);
    const token = await this.token();
    const response = await this.#authorized(request.clone(), token);
    if (!isTokenRejected(response)) return response;
    const fresh = await this.token(token);
    return fresh === token ? response : this.#authorized(request, fresh);
  }

  #authorized(request: Request, token: string): Promise<Response> {
    request.headers.set("Authorization", `Bearer ${token}`);
    return this.#send(request);
  }

  async #asked(): Promise<string> {
    const { clientId, clientSecret, scope, resource } = this.#options;
    // Both are form-encoded first (RFC 6749 section 2.3.1).
    const pair = [clientId, clientSecret].map((part) => encodeURIComponent(part).replaceAll("%20", "+")).join(":");
    const body = new URLSearchParams({ grant_type: "client_credentials" });
    if (scope !== undefined) body.set("scope", scope);
    if (resource !== undefined) body.set("resource", resource);
    const headers = { Authorization: `Basic ${btoa(pair)}` };
    const response = await this.#send(this.#url, guarded({ method: "POST", headers, body }));
    const said = await jsonOf<{ access_token: string; expires_in: number }>(response);
    checkFields(said, "access_token");
    const lifetime = said.expires_in * 1000;
    const starts = Date.now();
    this.#token = { value: said.access_token, starts, ends: starts + lifetime - Math.min(30_000, lifetime / 2) };
    return said.access_token;
  }
}

/** A credential of an external service; `secret` is text or an object, as it was stored, and not enumerable. */
export interface ServiceCredential {
  id: string;
  name: string;
  type: string;
  secret: unknown;
  baseUrl: string;
  expiresAt: string | undefined;
  metadata: Record<string, unknown>;
}

interface SecretsResponse {
  base_url: string;
  credentials: {
    id: string;
    name: string;
    type: string;
    secret: unknown;
    expires_at: string | null;
    metadata: Record<string, unknown>;
  }[];
}

/** Reads credentials of external services. The client needs the scopes `services:read` and `services:credentials`. */
export class Registry {
  readonly #url: string;
  readonly #client: ClientCredentials;

  constructor(baseUrl: string, client: ClientCredentials) {
    this.#url = `${checkedUrl("baseUrl", baseUrl).replace(/\/+$/, "")}/exsvc/api/v1/services`;
    this.#client = client;
  }

  /** Return the active credentials of the service with this name. Every read is audited. Throws ApiError. */
  async credentials(service: string): Promise<ServiceCredential[]> {
    const query = new URLSearchParams({ name: service, limit: "100" });
    const { services } = await this.#get<{ services: { id: string; name: string }[] }>(`${this.#url}?${query}`);
    // The filter ignores case; a tenant may have services whose names differ in nothing else.
    const [found, ...more] = services.filter(({ name }) => name === service);
    if (!found) throw new IdentityError(`The tenant has no service with the name ${service}.`);
    if (more.length > 0) throw new IdentityError(`The tenant has several services with the name ${service}.`);
    const said = await this.#get<SecretsResponse>(`${this.#url}/${encodeURIComponent(found.id)}/credentials`);
    return said.credentials.map(({ id, name, type, secret, metadata, expires_at }) => {
      const shown = { id, name, type, metadata, baseUrl: said.base_url, expiresAt: expires_at ?? undefined };
      return Object.defineProperty(shown, "secret", { value: secret }) as ServiceCredential;
    });
  }

  /** Return one active credential by the names of the service and its own. */
  async credential(service: string, name: string): Promise<ServiceCredential> {
    const found = (await this.credentials(service)).find((each) => each.name === name);
    if (!found) throw new IdentityError(`The service ${service} has no active credential with the name ${name}.`);
    return found;
  }

  async #get<T>(url: string): Promise<T> {
    return jsonOf(await this.#client.fetch(url, guarded()));
  }
}
