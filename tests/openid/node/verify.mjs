// Verifies tokens with the unchanged library `jose`, set up for one issuer. Standard input: {jwks, issuer, audience, tokens}; standard
// output: for each name of a token whether it is accepted.
import { readFileSync } from "node:fs";
import { createLocalJWKSet, errors, jwtVerify } from "jose";

const { jwks, issuer, audience, tokens } = JSON.parse(readFileSync(0, "utf8"));
const keys = createLocalJWKSet(jwks);
const accepted = {};
for (const [name, token] of Object.entries(tokens)) {
  try {
    await jwtVerify(token, keys, { issuer, audience, typ: "at+jwt" });
    accepted[name] = true;
  } catch (problem) {
    if (!(problem instanceof errors.JOSEError)) throw problem;
    accepted[name] = false;
  }
}
console.log(JSON.stringify(accepted));
