import passport from "passport";
import Strategy from "passport-oauth2";

import { callbackUrl, clientId, clientSecret, fetchUser, listen, metadata, newSite } from "./site.mjs";

const provider = await metadata();
passport.use(new Strategy(
  {
    authorizationURL: provider.authorization_endpoint,
    tokenURL: provider.token_endpoint,
    clientID: clientId,
    clientSecret,
    callbackURL: callbackUrl,
    scope: "openid email",
    pkce: true, state: true,
  },
  (accessToken, _refreshToken, _profile, done) => fetchUser(accessToken).then((user) => done(null, user), done),
));
passport.serializeUser((user, done) => done(null, user));
passport.deserializeUser((user, done) => done(null, user));

const site = newSite();
site.use(passport.session());
site.get("/login", passport.authenticate("oauth2"));
site.get("/callback", passport.authenticate("oauth2", { successRedirect: "/" }));
site.get("/", (request, response) => response.json(request.user ?? {}));
listen(site);
