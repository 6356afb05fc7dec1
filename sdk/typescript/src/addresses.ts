/** Where secrets may be sent. */

import { IdentityError } from "./errors.js";

/** Milliseconds in which the platform must respond. */
const TIMEOUT = 30_000;

/** Return the URL. Throws TypeError unless it is https, or http to this machine: secrets and keys travel there. */
export function checkedUrl(name: string, url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  const isLocal = /^(localhost|.+\.localhost|127\.[\d.]+|\[::1\])$/.test(parsed?.hostname ?? "");
  if (parsed?.protocol !== "https:" && !(parsed?.protocol === "http:" && isLocal)) {
    throw new TypeError(`${name} must begin with https://; http:// is for this machine only.`);
  }
  return url;
}

/** The origins of these URLs. */
export function originsOf(urls: readonly string[]): ReadonlySet<string> {
  return new Set(urls.map((url) => new URL(url).origin));
}

/** Throw IdentityError if a request leads elsewhere: a service that gets a token can use it. */
export function checkOrigin(url: string, origins: ReadonlySet<string>): void {
  const { origin, host } = new URL(url);
  if (origins.has(origin)) return;
  throw new IdentityError(`The token is not sent to ${host}. Name its origin in \`origins\` if it may get it.`);
}

/** Options of a request with secrets: a redirect would repeat them elsewhere. */
export function guarded(init: RequestInit = {}): RequestInit {
  const timeout = AbortSignal.timeout(TIMEOUT);
  return { ...init, redirect: "error", signal: init.signal ? AbortSignal.any([init.signal, timeout]) : timeout };
}
