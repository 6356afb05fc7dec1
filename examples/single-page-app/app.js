/* global oidc, ISSUER, CLIENT_ID */
const { UserManager } = oidc;

// --- configuration
const manager = new UserManager({
  authority: ISSUER, client_id: CLIENT_ID,
  redirect_uri: `${location.origin}/`, post_logout_redirect_uri: `${location.origin}/`,
  scope: "openid profile email offline_access", loadUserInfo: true,
});
// --- end of configuration

const element = (id) => document.getElementById(id);

function show(user) {
  element("state").textContent = user ? `Signed in as ${user.profile.name || user.profile.email}.` : "You are not signed in.";
  element("sign-in").hidden = Boolean(user);
  element("renew").hidden = element("sign-out").hidden = !user;
}

function attempt(action) {
  return action().catch((problem) => (element("state").textContent = `Failed: ${problem.message}`));
}

element("sign-in").onclick = () => attempt(() => manager.signinRedirect());
element("sign-out").onclick = () => attempt(() => manager.signoutRedirect());
element("renew").onclick = () => attempt(async () => {
  show(await manager.signinSilent());
  element("state").textContent += " The tokens are new.";
});

await attempt(async () => {
  if (location.search.includes("state=")) {
    // Back from the tenant: the code is in the address once and must not stay in the history.
    if (location.search.includes("code=") || location.search.includes("error=")) await manager.signinRedirectCallback();
    history.replaceState(null, "", location.pathname);
  }
  show(await manager.getUser());
});
