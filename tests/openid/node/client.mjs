// Runs one flow with an unchanged OpenID client library. Standard input and output carry one JSON object per line: first the
// flow, then for each authorization request its address and the address that the browser came back to.
import * as readline from "node:readline";
import * as oauth from "oauth4webapi";
import * as openid from "openid-client";

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const read = async () => JSON.parse((await lines.next()).value);
const write = (value) => console.log(JSON.stringify(value));
const algorithm = { name: "ECDSA", namedCurve: "P-256" };
const flow = await read();
const key = flow.key && (await crypto.subtle.importKey("jwk", flow.key, algorithm, false, ["sign"]));

function authentication(library) {
  if (key) return library.PrivateKeyJwt({ key, kid: flow.key.kid });
  if (flow.method === "client_secret_post") return library.ClientSecretPost(flow.secret);
  return flow.secret ? library.ClientSecretBasic(flow.secret) : library.None();
}

async function byOpenidClient() {
  const insecure = { execute: [openid.allowInsecureRequests] };
  const config = await openid.discovery(new URL(flow.issuer), flow.client_id, {}, authentication(openid), insecure);
  if (flow.grant === "client_credentials") return openid.clientCredentialsGrant(config, { scope: flow.scope });
  const verifier = openid.randomPKCECodeVerifier();
  const checks = { pkceCodeVerifier: verifier, expectedState: openid.randomState(), expectedNonce: openid.randomNonce() };
  const build = flow.par ? openid.buildAuthorizationUrlWithPAR : openid.buildAuthorizationUrl;
  const address = await build(config, {
    redirect_uri: flow.redirect_uri,
    scope: flow.scope,
    state: checks.expectedState,
    nonce: checks.expectedNonce,
    code_challenge: await openid.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
  });
  write({ address });
  const back = new URL((await read()).address);
  const tokens = await openid.authorizationCodeGrant(config, back, { ...checks, idTokenExpected: true });
  const refreshed = tokens.refresh_token && (await openid.refreshTokenGrant(config, tokens.refresh_token));
  return { ...tokens, claims: tokens.claims(), refreshed };
}

async function byOauth4webapi() {
  const insecure = { [oauth.allowInsecureRequests]: true };
  const issuer = new URL(flow.issuer);
  const found = await oauth.discoveryRequest(issuer, { algorithm: "oauth2", ...insecure });
  const server = await oauth.processDiscoveryResponse(issuer, found);
  const client = { client_id: flow.client_id };
  const parameters = new URLSearchParams({ scope: flow.scope });
  const response = await oauth.clientCredentialsGrantRequest(server, client, authentication(oauth), parameters, insecure);
  return oauth.processClientCredentialsResponse(server, client, response);
}

try {
  write({ result: await (flow.library === "oauth4webapi" ? byOauth4webapi() : byOpenidClient()) });
} catch (problem) {
  write({ error: problem.error ?? problem.code ?? String(problem), description: problem.error_description ?? String(problem.cause ?? "") });
}
process.exit();
