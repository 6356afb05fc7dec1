import { createHash, randomBytes } from "node:crypto";
import { AuthorizationCode } from "simple-oauth2";

import { callbackUrl, clientId, clientSecret, fetchUser, issuer, metadata, serve } from "./site.mjs";

const provider = await metadata();
const path = (name) => new URL(provider[name]).pathname;
const client = new AuthorizationCode({
  client: { id: clientId, secret: clientSecret },
  auth: { tokenHost: issuer, tokenPath: path("token_endpoint"), authorizePath: path("authorization_endpoint") },
});
const random = () => randomBytes(32).toString("base64url");

serve({
  login(session) {
    Object.assign(session, { state: random(), verifier: random() });
    const code_challenge = createHash("sha256").update(session.verifier).digest("base64url");
    const challenge = { code_challenge, code_challenge_method: "S256" };
    return client.authorizeURL({ redirect_uri: callbackUrl, scope: "openid email", state: session.state, ...challenge });
  },
  async callback(session, address) {
    if (address.searchParams.get("state") !== session.state) throw new Error("state");
    const code = address.searchParams.get("code");
    const parameters = { code, redirect_uri: callbackUrl, code_verifier: session.verifier };
    session.tokens = (await client.getToken(parameters)).token;
    return fetchUser(session.tokens.access_token);
  },
  async refresh(session) {
    const refreshed = await client.createToken(session.tokens).refresh();
    return fetchUser(refreshed.token.access_token);
  },
});
