import { ConfidentialClientApplication, CryptoProvider } from "@azure/msal-node";

import { callbackUrl, clientId, clientSecret, issuer, serve } from "./site.mjs";

const client = new ConfidentialClientApplication({
  auth: { clientId, clientSecret, authority: issuer, knownAuthorities: [new URL(issuer).host] },
  system: { protocolMode: "OIDC" },
});
const request = { scopes: ["email"], redirectUri: callbackUrl };

serve({
  async login(session) {
    const { verifier, challenge } = await new CryptoProvider().generatePkceCodes();
    session.verifier = verifier;
    return client.getAuthCodeUrl({ ...request, codeChallenge: challenge, codeChallengeMethod: "S256" });
  },
  async callback(session, address) {
    const code = address.searchParams.get("code");
    const result = await client.acquireTokenByCode({ ...request, code, codeVerifier: session.verifier });
    session.homeAccountId = result.account.homeAccountId;
    return result.idTokenClaims;
  },
  async refresh(session) {
    const account = await client.getTokenCache().getAccountByHomeId(session.homeAccountId);
    const refreshed = await client.acquireTokenSilent({ account, scopes: request.scopes, forceRefresh: true });
    return refreshed.idTokenClaims;
  },
});
