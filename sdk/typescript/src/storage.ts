/** Where the tokens of a session are kept. */

/** The tokens of one session; `expiresAt` is the end of the access token in milliseconds since 1970. */
export interface Tokens {
  readonly accessToken: string;
  readonly refreshToken: string;
  readonly expiresAt: number;
}

/** Keeps the tokens of one user. */
export interface TokenStorage {
  /** Return the tokens, or undefined if the user is signed out. */
  load(): Tokens | undefined | Promise<Tokens | undefined>;
  /** Replace the tokens; undefined signs the user out. */
  save(tokens: Tokens | undefined): void | Promise<void>;
  /**
   * Run work that no other holder of the same storage, such as another tab, does at the same time; `load` inside it returns
   * the current tokens. Every `save` is called inside it.
   */
  exclusively?<T>(work: () => Promise<T>): Promise<T>;
}

/** Keeps the tokens until the page or the process ends. */
export class MemoryStorage implements TokenStorage {
  #tokens: Tokens | undefined;

  constructor(tokens?: Tokens) {
    this.#tokens = tokens;
  }

  load(): Tokens | undefined {
    return this.#tokens;
  }

  save(tokens: Tokens | undefined): void {
    this.#tokens = tokens;
  }
}
