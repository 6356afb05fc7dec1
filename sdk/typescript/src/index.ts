/** The identity platform for TypeScript: sign-in and calls of one user. See also `/browser`, `/server`, `/express`, `/webhooks`. */

export { IdentityClient, SecondStep } from "./client.js";
export type { ClientOptions, Method, Proof, TokenResponse } from "./client.js";
export { ApiError, IdentityError, InvalidResponse, SignedOut, StepUpRequired } from "./errors.js";
export type { components, paths } from "./schema.js";
export { MemoryStorage } from "./storage.js";
export type { TokenStorage, Tokens } from "./storage.js";
