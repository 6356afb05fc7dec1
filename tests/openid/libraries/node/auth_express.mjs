import { ExpressAuth, getSession } from "@auth/express";

import { clientId, clientSecret, issuer, listen, newSite, secret } from "./site.mjs";

const config = {
  providers: [{ id: "identity", name: "Identity", type: "oidc", issuer, clientId, clientSecret }],
  secret, trustHost: true,
  callbacks: {
    jwt: ({ token, account }) => (account ? { ...token, sub: account.providerAccountId } : token),
    session: ({ session, token }) => ({ sub: token.sub, email: session.user.email, expires: session.expires }),
  },
};

const site = newSite();
site.use(/^\/auth\/(.*)/, ExpressAuth(config)); // the library looks for a pattern without a name
site.get("/", async (request, response) => response.json((await getSession(request, config)) ?? {}));
listen(site);
