import grant from "grant";

import { clientId, clientSecret, fetchUser, listen, metadata, newSite, port } from "./site.mjs";

const provider = await metadata();
const site = newSite();
site.use(grant.express({
  defaults: { origin: `http://127.0.0.1:${port}`, transport: "session" },
  identity: {
    authorize_url: provider.authorization_endpoint, access_url: provider.token_endpoint, oauth: 2,
    client_id: clientId, client_secret: clientSecret, callback: "/",
    scope: ["openid", "email"], scope_delimiter: " ", response: ["tokens", "jwt"],
    state: true, nonce: true, pkce: true,
  },
}));
site.get("/", async (request, response) => {
  const tokens = request.session.grant?.response;
  if (tokens?.error) return response.status(500).json(tokens);
  response.json(tokens ? { ...(await fetchUser(tokens.access_token)), nonce: tokens.jwt.id_token.payload.nonce } : {});
});
listen(site);
