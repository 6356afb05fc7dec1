// The site around a library. /login sends the browser to the provider, /callback takes it back, / has the user's claims as
// JSON, /refresh those that refreshed tokens give, and /logout ends the session. Environment variables configure it.
import express from "express";
import session from "express-session";

export const issuer = process.env.OIDC_ISSUER;
export const clientId = process.env.OIDC_CLIENT_ID;
export const clientSecret = process.env.OIDC_CLIENT_SECRET;
export const port = Number(process.env.PORT);
export const secret = process.env.SECRET_KEY;
export const home = `http://127.0.0.1:${port}/`;
export const callbackUrl = `${home}callback`;

export const metadata = async () => (await fetch(`${issuer}/.well-known/openid-configuration`)).json();

export async function fetchUser(accessToken) {
  const { userinfo_endpoint } = await metadata();
  const response = await fetch(userinfo_endpoint, { headers: { Authorization: `Bearer ${accessToken}` } });
  if (!response.ok) throw new Error(`userinfo: ${response.status}`);
  return response.json();
}

export function newSite() {
  const site = express();
  site.use(session({ secret, resave: false, saveUninitialized: false }));
  return site;
}

export const listen = (site) => site.listen(port, "127.0.0.1");

// For libraries without a server: each function takes the session; `login` and `logout` return an address, the others claims.
export function serve({ login, callback, refresh, logout }) {
  const site = newSite();
  site.get("/login", async (request, response) => response.redirect(await login(request.session)));
  site.get("/callback", async (request, response) => {
    request.session.user = await callback(request.session, new URL(request.url, home), request);
    response.redirect("/");
  });
  site.get("/refresh", async (request, response) => response.json(await refresh(request.session)));
  site.get("/logout", async (request, response) => {
    const address = await logout(request.session);
    request.session.destroy(() => response.redirect(address));
  });
  site.get("/", (request, response) => response.json(request.session.user ?? {}));
  listen(site);
}
