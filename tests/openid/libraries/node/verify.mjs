// APIs that verify access tokens of the audience API_AUDIENCE: a path for each library, with the user's id as JSON.
import { JwtVerifier } from "aws-jwt-verify";
import express from "express";
import { expressjwt } from "express-jwt";
import { auth } from "express-oauth2-jwt-bearer";
import jwksRsa from "jwks-rsa";

import { issuer, listen, metadata } from "./site.mjs";

const audience = process.env.API_AUDIENCE;
const { jwks_uri: jwksUri } = await metadata();
const byExpressJwt = expressjwt({ secret: jwksRsa.expressJwtSecret({ jwksUri }), issuer, audience, algorithms: ["ES256"] });
const verifier = JwtVerifier.create({ issuer, audience, jwksUri });

const site = express();
site.get("/express-oauth2-jwt-bearer", auth({ issuerBaseURL: issuer, audience }), (request, response) => {
  response.json({ sub: request.auth.payload.sub });
});
site.get("/express-jwt", byExpressJwt, (request, response) => response.json({ sub: request.auth.sub }));
site.get("/aws-jwt-verify", async (request, response) => {
  const token = request.headers.authorization.replace("Bearer ", "");
  try {
    response.json({ sub: (await verifier.verify(token)).sub });
  } catch (error) {
    response.status(401).json({ error: error.message });
  }
});
site.use((error, _request, response, _next) => response.status(error.status ?? 500).json({ error: error.message }));
listen(site);
