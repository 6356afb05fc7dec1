import passport from "passport";
import Strategy from "passport-openidconnect";

import { callbackUrl, clientId, clientSecret, issuer, listen, metadata, newSite } from "./site.mjs";

const provider = await metadata();
passport.use(new Strategy(
  {
    issuer,
    authorizationURL: provider.authorization_endpoint,
    tokenURL: provider.token_endpoint,
    userInfoURL: provider.userinfo_endpoint,
    clientID: clientId,
    clientSecret,
    callbackURL: callbackUrl,
    scope: "email",
    nonce: true,
  },
  (_issuer, profile, done) => done(null, { sub: profile.id, email: profile.emails[0].value }),
));
passport.serializeUser((user, done) => done(null, user));
passport.deserializeUser((user, done) => done(null, user));

const site = newSite();
site.use(passport.session());
site.get("/login", passport.authenticate("openidconnect"));
site.get("/callback", passport.authenticate("openidconnect", { successRedirect: "/" }));
site.get("/", (request, response) => response.json(request.user ?? {}));
listen(site);
