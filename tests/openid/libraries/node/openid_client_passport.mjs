import { discovery } from "openid-client";
import { Strategy } from "openid-client/passport";
import passport from "passport";

import { callbackUrl, clientId, clientSecret, issuer, listen, newSite } from "./site.mjs";

const config = await discovery(new URL(issuer), clientId, clientSecret);
const verify = (tokens, done) => done(null, tokens.claims());
passport.use("identity", new Strategy({ config, scope: "openid email", callbackURL: callbackUrl }, verify));
passport.serializeUser((user, done) => done(null, user));
passport.deserializeUser((user, done) => done(null, user));

const site = newSite();
site.use(passport.session());
site.get("/login", passport.authenticate("identity"));
site.get("/callback", passport.authenticate("identity", { successRedirect: "/" }));
site.get("/", (request, response) => response.json(request.user ?? {}));
listen(site);
