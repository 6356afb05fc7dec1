/** Express: middleware that verifies the access token of a request. */

import type { RequestHandler } from "express";
import { AccessDenied } from "./errors.js";
import { type Principal, Verifier, type VerifierOptions } from "./server.js";

declare global {
  namespace Express {
    interface Request {
      /** The subject of the access token, behind `requirePermission`. */
      principal?: Principal;
    }
  }
}

/** Middleware for the tokens of one issuer. */
export class IdentityAuth {
  readonly verifier: Verifier;

  constructor(options: VerifierOptions) {
    this.verifier = new Verifier(options);
  }

  /** Require these permissions; none: any valid token. The handler gets `request.principal`. */
  requirePermission(...permissions: string[]): RequestHandler {
    return async (request, response, next) => {
      try {
        request.principal = await this.verifier.authorize(request.headers.authorization, ...permissions);
      } catch (error) {
        if (!(error instanceof AccessDenied)) throw error;
        response.set(error.headers).status(error.status).json(error.body);
        return;
      }
      next();
    };
  }
}
