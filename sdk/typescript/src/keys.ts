/** The published keys of an issuer (RFC 8414, RFC 7517). */

import { createLocalJWKSet, errors, type JSONWebKeySet, type JWTVerifyGetKey } from "jose";
import { checkedUrl } from "./addresses.js";

/** Milliseconds in which keys are used without another fetch, and in which they are used if fetching fails. */
const FRESH = 300_000;
const USABLE = 900_000;
/** Milliseconds between two attempts to fetch, whether they fail or not: a caller can make up key ids. */
const COOLDOWN = 30_000;
const TIMEOUT = 10_000;

/** The key may exist, but the keys cannot be fetched at the moment. */
export class KeysUnavailable extends Error {}

/** Keys that are known are used at once, also while others are fetched. */
export class PublishedKeys {
  readonly #issuer: string;
  #uri: string | undefined;
  #keys: JWTVerifyGetKey | undefined;
  #fetched = -Infinity;
  #attempted = -Infinity;
  #fetching: Promise<void> | undefined;

  constructor(issuer: string, uri: string | undefined) {
    this.#issuer = issuer;
    this.#uri = uri;
  }

  /** Return the key of a token. Throws KeysUnavailable, or an error of jose if the issuer has no such key. */
  readonly find: JWTVerifyGetKey = async (...token) => {
    const known = await this.#known(token);
    if (known && Date.now() - this.#fetched < FRESH) return known;
    if (Date.now() - this.#attempted >= COOLDOWN) {
      this.#attempted = Date.now();
      this.#fetching = this.#fetch().finally(() => {
        this.#fetching = undefined;
      });
      this.#fetching.catch(() => undefined); // also if no request waits for it
    }
    if (known) return known;
    try {
      await this.#fetching;
    } catch (error) {
      throw new KeysUnavailable("The keys cannot be fetched.", { cause: error });
    }
    const found = await this.#known(token);
    if (found) return found;
    if (this.#fetched >= this.#attempted) throw new errors.JWKSNoMatchingKey();
    throw new KeysUnavailable("The last attempt to fetch the keys has failed.");
  };

  async #known(token: Parameters<JWTVerifyGetKey>): Promise<CryptoKey | undefined> {
    if (!this.#keys || Date.now() - this.#fetched >= USABLE) return undefined;
    try {
      return (await this.#keys(...token)) as CryptoKey;
    } catch (error) {
      if (error instanceof errors.JWKSNoMatchingKey) return undefined;
      throw error;
    }
  }

  async #fetch(): Promise<void> {
    if (this.#uri === undefined) {
      const { origin, pathname } = new URL(this.#issuer);
      const path = pathname === "/" ? "" : pathname;
      const metadata = await objectAt(`${origin}/.well-known/oauth-authorization-server${path}`);
      if (metadata["issuer"] !== this.#issuer) throw new Error("The metadata is of another issuer.");
      this.#uri = checkedUrl("jwks_uri", metadata["jwks_uri"] as string);
    }
    const set = await objectAt(this.#uri);
    if (!Array.isArray(set["keys"]) || set["keys"].length === 0) throw new Error("The issuer has no keys.");
    this.#keys = createLocalJWKSet(set as unknown as JSONWebKeySet);
    this.#fetched = Date.now();
  }
}

async function objectAt(url: string): Promise<Record<string, unknown>> {
  const response = await fetch(url, { redirect: "error", signal: AbortSignal.timeout(TIMEOUT) });
  const said: unknown = response.ok ? await response.json() : undefined;
  if (typeof said !== "object" || said === null) throw new Error(`HTTP ${response.status} without a JSON object.`);
  return said as Record<string, unknown>;
}
