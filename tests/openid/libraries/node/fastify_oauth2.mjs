import oauth2 from "@fastify/oauth2";
import fastify from "fastify";

import { callbackUrl, clientId, clientSecret, issuer, port } from "./site.mjs";

const site = fastify();
let tokens;
site.register(oauth2, {
  name: "identity",
  credentials: { client: { id: clientId, secret: clientSecret } },
  discovery: { issuer },
  scope: ["openid", "email"],
  startRedirectPath: "/login",
  callbackUri: callbackUrl,
});
site.get("/callback", async (request, reply) => {
  tokens = (await site.identity.getAccessTokenFromAuthorizationCodeFlow(request, reply)).token;
  return reply.redirect("/");
});
site.get("/refresh", async () => {
  tokens = (await site.identity.getNewAccessTokenUsingRefreshToken(tokens, {})).token;
  return site.identity.userinfo(tokens);
});
site.get("/", async () => (tokens ? site.identity.userinfo(tokens) : {}));
site.listen({ port, host: "127.0.0.1" });
