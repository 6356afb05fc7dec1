/** Servers: verify access tokens (RFC 9068), get tokens of the application itself, read registry credentials. */

import { createRemoteJWKSet, errors, jwtVerify, type JWTPayload, type JWTVerifyGetKey } from "jose";
import { AccessDenied, IdentityError, checked, isTokenRejected } from "./errors.js";

export { AccessDenied, ApiError, IdentityError } from "./errors.js";

/** Errors of jose that are none of the token: no response, a response other than 200, and keys that cannot be read. */
const UNAVAILABLE = ["ERR_JWKS_TIMEOUT", "ERR_JOSE_GENERIC", "ERR_JWKS_INVALID"];

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
 * Verifies the tokens of one issuer with its published keys, cached for five minutes; a token with an unknown key causes
 * another fetch, at most every 30 seconds.
 */
export class Verifier {
  readonly #issuer: string;
  readonly #audience: string;
  readonly #algorithms: string[];
  #jwksUri: string | undefined;
  #keys: Promise<JWTVerifyGetKey> | undefined;

  constructor(options: VerifierOptions) {
    this.#issuer = options.issuer;
    this.#audience = options.audience ?? "identity-api";
    this.#algorithms = [...(options.algorithms ?? ["ES256"])];
    this.#jwksUri = options.jwksUri;
  }

  /** Verify the header Authorization of a request and require these permissions. Throws AccessDenied. */
  async authorize(authorization: string | undefined, ...permissions: string[]): Promise<Principal> {
    const token = /^bearer +(\S+)$/i.exec(authorization ?? "")?.[1];
    if (token === undefined) {
      const message = "Send a valid access token: `Authorization: Bearer …`.";
      throw new AccessDenied(401, "unauthorized", message, "Bearer");
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
      permissions: new Set(Array.isArray(permissions) ? (permissions as string[]) : []),
      claims,
    };
  }

  async #claims(token: string): Promise<JWTPayload> {
    try {
      const { payload } = await jwtVerify(token, await this.#keySet(), {
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
      return payload;
    } catch (error) {
      if (!(error instanceof errors.JOSEError) || UNAVAILABLE.includes(error.code)) {
        const message = "The keys of the issuer cannot be fetched.";
        throw new AccessDenied(503, "keys_unavailable", message, "", { cause: error });
      }
      const challenge = 'Bearer error="invalid_token"';
      const message = "The access token is invalid or has expired.";
      throw new AccessDenied(401, "invalid_token", message, challenge, { cause: error });
    }
  }

  #keySet(): Promise<JWTVerifyGetKey> {
    this.#keys ??= this.#discovered().catch((error: unknown) => {
      this.#keys = undefined;
      throw error;
    });
    return this.#keys;
  }

  async #discovered(): Promise<JWTVerifyGetKey> {
    if (this.#jwksUri === undefined) {
      const { origin, pathname } = new URL(this.#issuer);
      const path = pathname === "/" ? "" : pathname;
      const response = await fetch(`${origin}/.well-known/oauth-authorization-server${path}`, {
        signal: AbortSignal.timeout(10_000),
      });
      const metadata = (await (await checked(response)).json()) as { issuer: string; jwks_uri: string };
      if (metadata.issuer !== this.#issuer) {
        throw new IdentityError(`The metadata is of another issuer: ${metadata.issuer}`);
      }
      this.#jwksUri = metadata.jwks_uri;
    }
    return createRemoteJWKSet(new URL(this.#jwksUri), { cacheMaxAge: 300_000, cooldownDuration: 30_000 });
  }
}

export interface ClientCredentialsOptions {
  /** The address of the platform. */
  baseUrl: string;
  clientId: string;
  clientSecret: string;
  scope?: string;
  fetch?: typeof globalThis.fetch;
}

/** Tokens of a confidential client (RFC 6749 section 4.4), requested once and used until they expire. */
export class ClientCredentials {
  readonly #options: ClientCredentialsOptions;
  readonly #send: typeof globalThis.fetch;
  #token: { value: string; ends: number } | undefined;
  #asking: Promise<string> | undefined;

  constructor(options: ClientCredentialsOptions) {
    this.#options = options;
    const { fetch } = options;
    this.#send = fetch ? (input, init) => fetch(input, init) : (input, init) => globalThis.fetch(input, init);
  }

  /** Return a token; a new one if the last one expires soon or was `rejected`. Throws ApiError. */
  async token(rejected?: string): Promise<string> {
    const known = this.#token;
    if (known && known.value !== rejected && known.ends > Date.now()) return known.value;
    this.#asking ??= this.#asked().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  /** `fetch` with the token; repeated once with a new one if the token was revoked. */
  async fetch(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
    const request = new Request(input, init);
    const token = await this.token();
    const response = await this.#authorized(request.clone(), token);
    return isTokenRejected(response) ? this.#authorized(request, await this.token(token)) : response;
  }

  #authorized(request: Request, token: string): Promise<Response> {
    request.headers.set("Authorization", `Bearer ${token}`);
    return this.#send(request);
  }

  async #asked(): Promise<string> {
    const { baseUrl, clientId, clientSecret, scope } = this.#options;
    // Both are form-encoded first (RFC 6749 section 2.3.1).
    const pair = [clientId, clientSecret].map((part) => encodeURIComponent(part).replaceAll("%20", "+")).join(":");
    const response = await this.#send(`${baseUrl.replace(/\/+$/, "")}/authmgr/token`, {
      method: "POST",
      headers: { Authorization: `Basic ${btoa(pair)}` },
      body: new URLSearchParams({ grant_type: "client_credentials", ...(scope === undefined ? {} : { scope }) }),
    });
    const said = (await (await checked(response)).json()) as { access_token: string; expires_in: number };
    const lifetime = said.expires_in * 1000;
    this.#token = { value: said.access_token, ends: Date.now() + lifetime - Math.min(30_000, lifetime / 2) };
    return said.access_token;
  }
}

/** A credential of an external service; `secret` is text or an object, as it was stored. */
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
    this.#url = `${baseUrl.replace(/\/+$/, "")}/exsvc/api/v1/services`;
    this.#client = client;
  }

  /** Return the active credentials of the service with this name. Every read is audited. Throws ApiError. */
  async credentials(service: string): Promise<ServiceCredential[]> {
    const query = new URLSearchParams({ name: service });
    const { services } = await this.#get<{ services: { id: string }[] }>(`${this.#url}?${query}`);
    const found = services[0];
    if (!found) throw new IdentityError(`The tenant has no service with the name ${service}.`);
    const said = await this.#get<SecretsResponse>(`${this.#url}/${found.id}/credentials`);
    return said.credentials.map(({ id, name, type, secret, metadata, expires_at }) => {
      return { id, name, type, secret, metadata, baseUrl: said.base_url, expiresAt: expires_at ?? undefined };
    });
  }

  /** Return one active credential by the names of the service and its own. */
  async credential(service: string, name: string): Promise<ServiceCredential> {
    const found = (await this.credentials(service)).find((each) => each.name === name);
    if (!found) throw new IdentityError(`The service ${service} has no active credential with the name ${name}.`);
    return found;
  }

  async #get<T>(url: string): Promise<T> {
    return (await (await checked(await this.#client.fetch(url))).json()) as T;
  }
}
