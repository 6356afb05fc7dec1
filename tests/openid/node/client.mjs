// Runs one flow with an unchanged OpenID client library. Standard input and output carry one JSON object per line: first the
// flow, then for each authorization request its address and the address that the browser came back to.
import * as readline from "node:readline";
import * as oauth from "oauth4webapi";
import * as openid from "openid-client";
import { certifiedFetch } from "./certified_fetch.mjs";

const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const read = async () => JSON.parse((await lines.next()).value);
const write = (value) => console.log(JSON.stringify(value));
const algorithm = { name: "ECDSA", namedCurve: "P-256" };
const flow = await read();
// The certificate with its key, and the authority of the server (RFC 8705).
const metadata = flow.certificate ? { use_mtls_endpoint_aliases: true } : {};
const fetched = (library) => (flow.certificate ? { [library.customFetch]: certifiedFetch(flow.certificate) } : {});
const key = flow.key && (await crypto.subtle.importKey("jwk", flow.key, algorithm, false, ["sign"]));

function authentication(library) {
  if (key) return library.PrivateKeyJwt({ key, kid: flow.key.kid });
  if (flow.certificate) return library.TlsClientAuth();
  if (flow.method === "client_secret_post") return library.ClientSecretPost(flow.secret);
  return flow.secret ? library.ClientSecretBasic(flow.secret) : library.None();
}

async function byOpenidClient() {
  const insecure = { execute: [openid.allowInsecureRequests], ...fetched(openid) };
  const config = await openid.discovery(new URL(flow.issuer), flow.client_id, metadata, authentication(openid), insecure);
  // The library repeats a request by itself if the server requires a nonce (RFC 9449 section 8).
  const options = flow.dpop ? { DPoP: openid.getDPoPHandle(config, await openid.randomDPoPKeyPair()) } : {};
  if (flow.grant === "client_credentials") return openid.clientCredentialsGrant(config, { scope: flow.scope }, options);
  if (flow.grant === "device_code") {
    const codes = await openid.initiateDeviceAuthorization(config, { scope: flow.scope });
    write({ address: codes.verification_uri_complete });
    await read();
    const polled = await openid.pollDeviceAuthorizationGrant(config, codes, {}, options);
    return { ...polled, claims: polled.claims() };
  }
  const verifier = openid.randomPKCECodeVerifier();
  const checks = { pkceCodeVerifier: verifier, expectedState: openid.randomState(), expectedNonce: openid.randomNonce() };
  if (flow.signed) openid.useJwtResponseMode(config);
  const build = flow.par ? openid.buildAuthorizationUrlWithPAR : openid.buildAuthorizationUrl;
  const asked = {
    redirect_uri: flow.redirect_uri,
    scope: flow.scope,
    state: checks.expectedState,
    nonce: checks.expectedNonce,
    code_challenge: await openid.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
  };
  const object = flow.signed && (await openid.buildAuthorizationUrlWithJAR(config, asked, { key, kid: flow.key.kid }));
  const address = object && !flow.par ? object : await build(config, object?.searchParams ?? asked, options);
  write({ address });
  const back = new URL((await read()).address);
  const tokens = await openid.authorizationCodeGrant(config, back, { ...checks, idTokenExpected: true }, {}, options);
  const claims = tokens.claims();
  const user = await openid.fetchUserInfo(config, tokens.access_token, claims.sub, options);
  const refreshed = await openid.refreshTokenGrant(config, tokens.refresh_token, {}, options);
  await openid.fetchUserInfo(config, refreshed.access_token, claims.sub, options);
  return { ...tokens, claims, user, refreshed };
}

async function byOauth4webapi() {
  const insecure = { [oauth.allowInsecureRequests]: true, ...fetched(oauth) };
  const issuer = new URL(flow.issuer);
  const found = await oauth.discoveryRequest(issuer, { algorithm: flow.rfc8414 ? "oauth2" : "oidc", ...insecure });
  const server = await oauth.processDiscoveryResponse(issuer, found);
  const client = { client_id: flow.client_id, ...metadata };
  const own = authentication(oauth);
  const options = { ...insecure };
  if (flow.dpop) options.DPoP = oauth.DPoP(client, await oauth.generateKeyPair("ES256"));
  // The first answer may require a nonce (RFC 9449 section 8); the library keeps it for the second try.
  const call = async (request, process) => {
    try {
      return await process(await request());
    } catch (problem) {
      if (!oauth.isDPoPNonceError(problem)) throw problem;
      nonces += 1;
      return process(await request());
    }
  };
  let nonces = 0;
  const parameters = new URLSearchParams({ scope: flow.scope });

  if (flow.grant === "client_credentials") {
    const request = () => oauth.clientCredentialsGrantRequest(server, client, own, parameters, options);
    return call(request, (response) => oauth.processClientCredentialsResponse(server, client, response));
  }

  let tokens;
  const seen = [];
  if (flow.grant === "device_code") {
    const asked = await oauth.deviceAuthorizationRequest(server, client, own, parameters, options);
    const codes = await oauth.processDeviceAuthorizationResponse(server, client, asked);
    const poll = () => oauth.deviceCodeGrantRequest(server, client, own, codes.device_code, options);
    const process = (response) => oauth.processDeviceCodeResponse(server, client, response);
    try {
      await call(poll, process);
    } catch (problem) {
      seen.push(problem.error);
    }
    write({ address: codes.verification_uri_complete });
    await read();
    tokens = await call(poll, process);
  } else {
    const verifier = oauth.generateRandomCodeVerifier();
    const [state, nonce] = [oauth.generateRandomState(), oauth.generateRandomNonce()];
    const asked = {
      client_id: flow.client_id,
      redirect_uri: flow.redirect_uri,
      response_type: "code",
      state,
      nonce,
      code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
      code_challenge_method: "S256",
    };
    for (const [name, value] of Object.entries(asked)) parameters.set(name, value);
    const address = new URL(server.authorization_endpoint);
    if (flow.signed) {
      parameters.set("response_mode", "jwt");
      const request = await oauth.issueRequestObject(server, client, parameters, { key, kid: flow.key.kid });
      for (const name of [...parameters.keys()]) if (name !== "client_id") parameters.delete(name);
      parameters.set("request", request);
    }
    if (flow.par) {
      const push = () => oauth.pushedAuthorizationRequest(server, client, own, parameters, options);
      const pushed = await call(push, (response) => oauth.processPushedAuthorizationResponse(server, client, response));
      address.search = new URLSearchParams({ client_id: flow.client_id, request_uri: pushed.request_uri });
    } else {
      address.search = parameters;
    }
    write({ address: address.href });
    const validate = flow.signed ? oauth.validateJwtAuthResponse : oauth.validateAuthResponse;
    const returned = new URL((await read()).address);
    const back = await validate(server, client, returned, state, insecure);
    const exchange = () => oauth.authorizationCodeGrantRequest(server, client, own, back, flow.redirect_uri, verifier, options);
    const checks = { expectedNonce: nonce, requireIdToken: true };
    tokens = await call(exchange, (response) => oauth.processAuthorizationCodeResponse(server, client, response, checks));
  }
  const claims = oauth.getValidatedIdTokenClaims(tokens);
  const ask = (access) => () => oauth.userInfoRequest(server, client, access, options);
  const about = (response) => oauth.processUserInfoResponse(server, client, claims.sub, response);
  const user = await call(ask(tokens.access_token), about);
  const refresh = () => oauth.refreshTokenGrantRequest(server, client, own, tokens.refresh_token, options);
  const refreshed = await call(refresh, (response) => oauth.processRefreshTokenResponse(server, client, response));
  await call(ask(refreshed.access_token), about);
  return { ...tokens, claims, user, refreshed, seen, nonces };
}

try {
  write({ result: await (flow.library === "oauth4webapi" ? byOauth4webapi() : byOpenidClient()) });
} catch (problem) {
  write({ error: problem.error ?? problem.code ?? String(problem), description: problem.error_description ?? String(problem.cause ?? "") });
}
process.exit();
