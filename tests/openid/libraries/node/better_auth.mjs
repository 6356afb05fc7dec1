import { betterAuth } from "better-auth";
import { memoryAdapter } from "better-auth/adapters/memory";
import { fromNodeHeaders, toNodeHandler } from "better-auth/node";
import { genericOAuth } from "better-auth/plugins";

import { clientId, clientSecret, fetchUser, home, issuer, listen, newSite, secret } from "./site.mjs";

const provider = {
  providerId: "identity", clientId, clientSecret, discoveryUrl: `${issuer}/.well-known/openid-configuration`,
  scopes: ["openid", "profile", "email"],
};
const auth = betterAuth({
  baseURL: home, secret, telemetry: { enabled: false },
  database: memoryAdapter({ user: [], session: [], account: [], verification: [] }),
  plugins: [genericOAuth({ config: [provider] })],
});

const site = newSite();
site.all("/api/auth/*path", toNodeHandler(auth));
site.get("/login", async (_request, response) => {
  const body = { provider: "identity", callbackURL: "/" };
  const started = await auth.api.signInSocial({ body, asResponse: true });
  response.setHeaders(new Headers(started.headers.getSetCookie().map((cookie) => ["Set-Cookie", cookie])));
  response.redirect((await started.json()).url);
});
site.get("/", async (request, response) => {
  const headers = fromNodeHeaders(request.headers);
  const session = await auth.api.getSession({ headers });
  if (!session) return response.json({});
  const [account] = await auth.api.listUserAccounts({ headers });
  response.json({ sub: account.accountId, email: session.user.email });
});
site.get("/refresh", async (request, response) => {
  const headers = fromNodeHeaders(request.headers);
  const [account] = await auth.api.listUserAccounts({ headers });
  const tokens = await auth.api.refreshToken({ headers, body: { accountId: account.id } });
  response.json(await fetchUser(tokens.accessToken));
});
listen(site);
