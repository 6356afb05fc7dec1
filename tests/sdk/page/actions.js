// What the tests do beside the example of the README, with its client.
import { IdentityClient } from "identity-platform-sdk";
import { registerPasskey, signInWithPasskey, stepUpWithPasskey, webStorage } from "identity-platform-sdk/browser";
import { client, options } from "/example.js";

const valueOf = (name) => document.querySelector(`[name=${name}]`).value;
const refreshes = () => performance.getEntriesByType("resource").filter(({ name }) => name.endsWith("/authmgr/token"));

async function claims() {
  const [, payload] = (await client.accessToken()).split(".");
  return JSON.parse(atob(payload.replaceAll("-", "+").replaceAll("_", "/")));
}

window.actions = {
  register: () => registerPasskey(client, valueOf("email"), { session: { current_password: valueOf("password") } }),
  registerTwice: () => registerPasskey(client, valueOf("email")).catch(({ name, code }) => `${name} ${code}`),
  signOut: () => client.signOut(),
  isSignedIn: () => client.isSignedIn(),
  amr: async () => (await claims()).amr,

  async signInAlone() {
    await signInWithPasskey(client);
    return (await claims()).amr;
  },

  // The sign-in of a user who has no factor, where the tenant requires one.
  async enrollAndSignIn() {
    const step = await client.signIn(valueOf("email"), valueOf("password"));
    await registerPasskey(client, valueOf("email"), { step });
    return [step.methods, (await claims()).amr];
  },

  async stepUp() {
    const { sid, jti } = await claims();
    const proof = await stepUpWithPasskey(client);
    const after = await claims();
    return proof.length > 20 && after.sid === sid && after.jti !== jti;
  },

  async readCorruptStorage() {
    for (const text of ["{", "[]", '{"accessToken": "a"}']) {
      localStorage.setItem("corrupt", text);
      if (await webStorage(localStorage, "corrupt").load()) return text;
    }
    return "signed out";
  },

  async refreshInTwoTabs() {
    const storage = webStorage(localStorage);
    await storage.save({ ...JSON.parse(sessionStorage.getItem("identity-platform-tokens")), expiresAt: 0 });
    const tabs = [1, 2].map(() => new IdentityClient({ ...options, storage }));
    const tokens = await Promise.all(tabs.flatMap((tab) => [tab.accessToken(), tab.accessToken()]));
    return [new Set(tokens).size, refreshes().length];
  },
};
