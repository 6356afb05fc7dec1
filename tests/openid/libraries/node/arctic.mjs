import { CodeChallengeMethod, decodeIdToken, generateCodeVerifier, generateState, OAuth2Client } from "arctic";

import { callbackUrl, clientId, clientSecret, fetchUser, metadata, serve } from "./site.mjs";

const provider = await metadata();
const client = new OAuth2Client(clientId, clientSecret, callbackUrl);
const scopes = ["openid", "email"];

serve({
  login(session) {
    Object.assign(session, { state: generateState(), verifier: generateCodeVerifier() });
    const { S256 } = CodeChallengeMethod;
    const { state, verifier } = session;
    return client.createAuthorizationURLWithPKCE(provider.authorization_endpoint, state, S256, verifier, scopes).href;
  },
  async callback(session, address) {
    if (address.searchParams.get("state") !== session.state) throw new Error("state");
    const code = address.searchParams.get("code");
    const tokens = await client.validateAuthorizationCode(provider.token_endpoint, code, session.verifier);
    session.refreshToken = tokens.refreshToken();
    return decodeIdToken(tokens.idToken());
  },
  async refresh(session) {
    const tokens = await client.refreshAccessToken(provider.token_endpoint, session.refreshToken, scopes);
    return fetchUser(tokens.accessToken());
  },
});
