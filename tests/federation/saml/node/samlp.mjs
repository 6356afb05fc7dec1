// Reads a request for authentication with the unchanged library `samlp`, which also answers in `saml-idp`. Standard input:
// {samlRequest, certificate}; standard output: what the request says, or {error} if the certificate does not verify it.
import { readFileSync } from "node:fs";
import samlp from "samlp";

const { samlRequest, certificate } = JSON.parse(readFileSync(0, "utf8"));
const received = { method: "POST", query: {}, body: { SAMLRequest: samlRequest } };
samlp.parseRequest(received, { signingCert: certificate }, (problem, request) => {
  process.stdout.write(JSON.stringify(problem ? { error: String(problem.message) } : { request }));
});
