// next-auth 4, of which this site calls the handler as the API routes of Next.js do.
import express from "express";
import nextAuth from "next-auth";
import { getServerSession } from "next-auth/next";

import { clientId, clientSecret, home, issuer, listen, newSite, secret } from "./site.mjs";

process.env.NEXTAUTH_URL = home;
const options = {
  providers: [{
    id: "identity", name: "Identity", type: "oauth", wellKnown: `${issuer}/.well-known/openid-configuration`, clientId, clientSecret,
    authorization: { params: { scope: "openid email" } }, idToken: true, checks: ["pkce", "state"],
    profile: (claims) => ({ id: claims.sub, email: claims.email }),
  }],
  secret,
  callbacks: { session: ({ session, token }) => ({ ...session, sub: token.sub, email: token.email }) },
};

const site = newSite();
site.use((request, _response, next) => {
  const pairs = (request.headers.cookie ?? "").split("; ").map((pair) => pair.split("="));
  request.cookies = Object.fromEntries(pairs.map(([name, value]) => [name, decodeURIComponent(value ?? "")]));
  next();
});
site.all("/api/auth/*path", express.urlencoded({ extended: false }), (request, response) => {
  Object.defineProperty(request, "query", { value: { ...request.query, nextauth: request.params.path } });
  return nextAuth.default(request, response, options);
});
site.get("/", async (request, response) => response.json((await getServerSession(request, response, options)) ?? {}));
listen(site);
