import { generators, Issuer } from "openid-client-5";

import { callbackUrl, clientId, clientSecret, home, issuer, serve } from "./site.mjs";

const provider = await Issuer.discover(issuer);
const client = new provider.Client({
  client_id: clientId, client_secret: clientSecret, redirect_uris: [callbackUrl], post_logout_redirect_uris: [home],
});

serve({
  login(session) {
    const [code_verifier, state, nonce] = [generators.codeVerifier(), generators.state(), generators.nonce()];
    session.checks = { code_verifier, state, nonce };
    const code_challenge = generators.codeChallenge(code_verifier);
    return client.authorizationUrl({ scope: "openid email", state, nonce, code_challenge, code_challenge_method: "S256" });
  },
  async callback(session, _address, request) {
    session.tokens = await client.callback(callbackUrl, client.callbackParams(request), session.checks);
    return client.userinfo(session.tokens.access_token);
  },
  async refresh(session) {
    const refreshed = await client.refresh(session.tokens.refresh_token);
    return client.userinfo(refreshed.access_token);
  },
  logout: (session) => client.endSessionUrl({ id_token_hint: session.tokens.id_token }),
});
