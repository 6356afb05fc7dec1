/** Errors: one class for error responses of the platform, and one for each thing that the SDK itself rejects. */

const STEP_UP = "insufficient_user_authentication";

/** The parent of every error of this package. Network errors are those of fetch. */
export class IdentityError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** No session is stored, or the platform has ended it: sign in again. */
export class SignedOut extends IdentityError {}

/** A success without the expected fields, such as the page of a proxy. No tokens were stored. */
export class InvalidResponse extends IdentityError {}

/** The signature of a webhook is missing or wrong, or its time is more than five minutes off. */
export class WebhookInvalid extends IdentityError {}

/** A request to your API is rejected: 401, 403, or 503 while the keys cannot be fetched. */
export class AccessDenied extends IdentityError {
  readonly status: 401 | 403 | 503;
  readonly code: string;
  /** Value for the header WWW-Authenticate (RFC 6750 section 3); empty for 503. */
  readonly challenge: string;

  constructor(status: 401 | 403 | 503, code: string, message: string, challenge = "", options?: ErrorOptions) {
    super(message, options);
    this.status = status;
    this.code = code;
    this.challenge = challenge;
  }

  /** The headers of the response. */
  get headers(): Record<string, string> {
    if (this.status === 503) return { "Retry-After": "5" };
    return this.challenge ? { "WWW-Authenticate": this.challenge } : {};
  }

  /** The body of the response, in the platform's own format. */
  get body(): { error: string; code: string; message: string } {
    const error = { 401: "Unauthorized", 403: "Forbidden", 503: "Service Unavailable" }[this.status];
    return { error, code: this.code, message: this.message };
  }
}

export interface ApiErrorFields {
  status: number;
  code: string;
  message: string;
  details: Readonly<Record<string, unknown>>;
  retryAfter: number | undefined;
  requestId: string | undefined;
  challenge: string;
}

/** An error response of the platform. */
export class ApiError extends IdentityError implements ApiErrorFields {
  readonly status: number;
  /** Stable name, such as `email_not_verified`; of the registry in upper case, such as `SERVICE_NOT_FOUND`. */
  readonly code: string;
  /** Messages by field, or further facts; empty if the response has none. */
  readonly details: Readonly<Record<string, unknown>>;
  /** Seconds to wait before the call is repeated. */
  readonly retryAfter: number | undefined;
  /** To quote to the platform's operators. */
  readonly requestId: string | undefined;
  /** The header WWW-Authenticate. */
  readonly challenge: string;

  constructor(fields: ApiErrorFields) {
    super(fields.message);
    this.status = fields.status;
    this.code = fields.code;
    this.details = fields.details;
    this.retryAfter = fields.retryAfter;
    this.requestId = fields.requestId;
    this.challenge = fields.challenge;
  }
}

/**
 * The session has not proven enough for this call (RFC 9470): call `stepUp`, then repeat it once. If `needsFactor`, that
 * does not help: the session must be of a sign-in with a second factor. Have the user enroll one if there is none, then
 * sign in again with it.
 */
export class StepUpRequired extends ApiError {
  /** Whether the user must enroll a factor, if there is none, and sign in again with it. */
  get needsFactor(): boolean {
    return this.maxAge === undefined;
  }

  /** How many seconds old the proof may be. */
  get maxAge(): number | undefined {
    const found = /max_age="?(\d+)/.exec(this.challenge)?.[1];
    return found === undefined ? undefined : Number(found);
  }

  /** The level that the session needs, such as `aal2`. */
  get acrValues(): string | undefined {
    return /acr_values="([^"]*)"/.exec(this.challenge)?.[1];
  }
}

type Fields = Record<string, unknown>;

const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const textOf = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);

/** Read an error response: the general format, the registry's, the one of OAuth, or a body that is none of these. */
export async function errorOf(response: Response): Promise<ApiError> {
  const body: unknown = await response.json().catch(() => undefined);
  const outer = isFields(body) ? body : {};
  const error = outer["error"];
  const fields = isFields(error) ? error : outer;
  const phrase = response.statusText || `HTTP ${response.status}`;
  // An OAuth error has no `message`; its `error` is the code (RFC 6749 section 5.2).
  const oauth = "message" in fields ? undefined : textOf(error);
  const code = textOf(fields["code"]) ?? oauth ?? (textOf(error) ?? phrase).toLowerCase().replaceAll(" ", "_");
  const { details } = fields;
  const kind = response.status === 401 && code === STEP_UP ? StepUpRequired : ApiError;
  return new kind({
    status: response.status,
    code,
    message: textOf(fields["message"]) ?? textOf(fields["error_description"]) ?? phrase,
    details: isFields(details) ? details : {},
    retryAfter: secondsOf(response.headers.get("Retry-After") ?? ""),
    requestId: response.headers.get("X-Request-ID") ?? undefined,
    challenge: response.headers.get("WWW-Authenticate") ?? "",
  });
}

/** Read the header Retry-After: seconds, or a date (RFC 9110 section 10.2.3). */
function secondsOf(retryAfter: string): number | undefined {
  if (/^\d{1,9}$/.test(retryAfter)) return Number(retryAfter);
  const then = retryAfter.endsWith("GMT") ? Date.parse(retryAfter) : NaN;
  return Number.isNaN(then) ? undefined : Math.max(0, Math.ceil((then - Date.now()) / 1000));
}

/** Return the JSON of a success. Throws ApiError, InvalidResponse. */
export async function jsonOf<T>(response: Response): Promise<T> {
  await checked(response);
  try {
    return (await response.json()) as T;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error; // the connection ended
    throw new InvalidResponse("The response is not JSON.", { cause: error });
  }
}

/** Throw InvalidResponse unless these fields are text that is not empty, and `expires_in` a finite number. */
export function checkFields(said: unknown, ...names: readonly string[]): void {
  const fields = isFields(said) ? said : {};
  const missing = names.find((name) => textOf(fields[name]) === undefined);
  if (missing !== undefined) throw new InvalidResponse(`The response has no valid \`${missing}\`.`);
  if (!Number.isFinite(fields["expires_in"])) throw new InvalidResponse("The response has no valid `expires_in`.");
}

/** Return a successful response; throw ApiError for another one. */
export async function checked(response: Response): Promise<Response> {
  if (!response.ok) throw await errorOf(response);
  return response;
}

/** Whether a new access token may help: the token has expired or was revoked (RFC 6750 section 3.1). */
export function isTokenRejected(response: Response): boolean {
  return response.status === 401 && (response.headers.get("WWW-Authenticate") ?? "").includes('error="invalid_token"');
}
