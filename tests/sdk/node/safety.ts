// Checks of sdk/typescript against a platform that is a function; prints the error of each check, or null.
import assert from "node:assert/strict";
import { inspect } from "node:util";
import {
  IdentityClient,
  IdentityError,
  InvalidResponse,
  MemoryStorage,
  SecondStep,
  SignedOut,
  StepUpRequired,
  type TokenStorage,
  type Tokens,
} from "identity-platform-sdk";
import { AccessDenied, ClientCredentials, Registry, Verifier } from "identity-platform-sdk/server";
import { verifyWebhook } from "identity-platform-sdk/webhooks";
import { SignJWT, exportJWK, generateKeyPair } from "jose";
import { changePassword } from "./step-up.ts";

const baseUrl = "https://id.example";
const issuer = `${baseUrl}/t/acme`;
const api = "https://api.example.com";
const LATER = 8e15;
type Respond = (request: Request) => Response | Promise<Response>;

const fetchOf = (respond: Respond): typeof fetch => async (input, init) => respond(new Request(input, init));
const clientOf = (respond: Respond, storage?: TokenStorage, onSignedOut: () => void = () => undefined) =>
  new IdentityClient({
    ...{ baseUrl, tenantId: "t", clientId: "c", fetch: fetchOf(respond), onSignedOut },
    ...(storage ? { storage } : {}),
  });
const kept = (expiresAt = LATER) => new MemoryStorage({ accessToken: "a", refreshToken: "r", expiresAt });
const issued = () => Response.json({ access_token: "a1", refresh_token: "r1", expires_in: 60 });
const pathOf = ({ url }: Request) => new URL(url).pathname;

// --- Tokens of this issuer ---

const { privateKey, publicKey } = await generateKeyPair("ES256");
const jwk = { ...(await exportJWK(publicKey)), kid: "k1", alg: "ES256", use: "sig" };
const token = (kid = "k1", claims: object = {}): Promise<string> =>
  new SignJWT({ kind: "end_user", jti: "j", sub: "u", aud: api, iss: issuer, ...claims })
    .setProtectedHeader({ alg: "ES256", typ: "at+jwt", kid })
    .setIssuedAt(0)
    .setExpirationTime(LATER / 1000)
    .sign(privateKey);

const now = Date.now;
/** Run work with an issuer in place of the network, and with a clock. */
async function withIssuer(work: (at: { asked: string[]; keys: () => Response | Promise<Response>; time: number }) => Promise<void>) {
  const at = { asked: [] as string[], keys: (): Response | Promise<Response> => Response.json({ keys: [jwk] }), time: 1e12 };
  const real = globalThis.fetch;
  Date.now = () => at.time;
  globalThis.fetch = fetchOf((request) => {
    at.asked.push(pathOf(request));
    return pathOf(request) === "/jwks" ? at.keys() : Response.json({ issuer, jwks_uri: `${baseUrl}/jwks` });
  });
  try {
    await work(at);
  } finally {
    globalThis.fetch = real;
    Date.now = now;
  }
}
const statusOf = (verifier: Verifier, presented: string): Promise<number> =>
  verifier.verify(presented).then(
    () => 200,
    (error: unknown) => (error instanceof AccessDenied ? error.status : 0),
  );

const checks: Record<string, () => Promise<void> | void> = {
  keysAreFetchedRarely: () =>
    withIssuer(async (at) => {
      const verifier = new Verifier({ issuer, audience: api });
      const [good, unknown] = [await token(), await token("made-up")];
      at.keys = () => new Response(null, { status: 500 });
      assert.deepEqual([await statusOf(verifier, good), await statusOf(verifier, good)], [503, 503]);
      assert.equal(at.asked.length, 2);
      at.keys = () => Response.json({ keys: [jwk] });
      at.time += 31_000;
      assert.deepEqual([await statusOf(verifier, good), await statusOf(verifier, unknown)], [200, 401]);
      // A fetch that does not end stalls no token whose key is known.
      at.time += 400_000;
      let respond: (response: Response) => void = () => undefined;
      at.keys = () => new Promise((resolve) => (respond = resolve));
      const waiting = statusOf(verifier, unknown);
      assert.deepEqual([await statusOf(verifier, good), await statusOf(verifier, good)], [200, 200]);
      respond(new Response(null, { status: 500 }));
      assert.deepEqual([await waiting, await statusOf(verifier, unknown), await statusOf(verifier, good)], [503, 503, 200]);
      assert.equal(at.asked.length, 4);
      at.time += 500_000;
      at.keys = () => Response.json([]);
      assert.equal(await statusOf(verifier, good), 503);
    }),

  claimsOfAnotherFormAreInvalid: () =>
    withIssuer(async () => {
      const verifier = new Verifier({ issuer, audience: api });
      for (const claims of [{ kind: "root" }, { kind: undefined }, { permissions: "a:b" }, { permissions: [1] }]) {
        assert.equal(await statusOf(verifier, await token("k1", claims)), 401);
      }
      assert.equal(await statusOf(verifier, "\ud800.a.b"), 401);
      assert.equal(await statusOf(verifier, await token("k1", { permissions: ["a:b"] })), 200);
    }),

  constructorsNeedAddresses() {
    for (const wrong of ["http://id.example", "", "id.example", undefined as unknown as string]) {
      assert.throws(() => new Verifier({ issuer: wrong }), TypeError);
      assert.throws(() => new IdentityClient({ baseUrl: wrong, tenantId: "t", clientId: "c" }), TypeError);
      assert.throws(() => new ClientCredentials({ baseUrl: wrong, clientId: "c", clientSecret: "s" }), TypeError);
    }
    assert.throws(() => new Verifier({ issuer, audience: "" }), TypeError);
    assert.ok(new Verifier({ issuer: "http://localhost:8000/t/acme" }));
  },

  async tokensAreSentToKnownOriginsOnly() {
    const asked: Request[] = [];
    const respond: Respond = (request) => {
      asked.push(request);
      return issued();
    };
    const secret = { baseUrl, clientId: "c", clientSecret: "s", fetch: fetchOf(respond) };
    const user = clientOf(respond, kept());
    for (const url of [api, "http://id.example/x", "https://id.example:8443/x"]) {
      await assert.rejects(new ClientCredentials(secret).fetch(url), IdentityError);
      await assert.rejects(user.fetch(url), IdentityError);
    }
    assert.equal(asked.length, 0);
    const bound = new ClientCredentials({ ...secret, issuer, resource: api });
    await bound.fetch(`${api}/invoices`);
    assert.deepEqual(asked.map(({ url }) => url), [`${issuer}/token`, `${api}/invoices`]);
    assert.equal(new URLSearchParams(await asked[0]?.text()).get("resource"), api);
    await assert.rejects(bound.fetch(`${baseUrl}/authmgr/validate`), IdentityError);
    assert.throws(() => new ClientCredentials({ ...secret, resource: api }), TypeError);
  },

  async secretsAreNotRedirected() {
    const asked: Request[] = [];
    const respond: Respond = (request) => {
      asked.push(request);
      return issued();
    };
    await clientOf(respond).signIn("ann@example.com", "x");
    await clientOf(respond, kept(0)).accessToken();
    await new ClientCredentials({ baseUrl, clientId: "c", clientSecret: "s", fetch: fetchOf(respond) }).token();
    await clientOf(respond, kept()).api.POST("/authmgr/logout", { body: {} });
    assert.deepEqual(asked.map(({ redirect }) => redirect), ["error", "error", "error", "error"]);
  },

  async newTokenIsNotReplaced() {
    let tokens = 0;
    const rejected = () => new Response(null, { status: 401, headers: { "WWW-Authenticate": 'Bearer error="invalid_token"' } });
    const respond: Respond = (request) => {
      if (pathOf(request) !== "/authmgr/token") return rejected();
      tokens += 1;
      return issued();
    };
    const application = new ClientCredentials({ baseUrl, clientId: "c", clientSecret: "s", fetch: fetchOf(respond) });
    for (const _ of [1, 2, 3]) assert.equal((await application.fetch(`${baseUrl}/x`)).status, 401);
    assert.equal(tokens, 1);
  },

  async otherSuccessIsNoSignIn() {
    const whole = { access_token: "a", refresh_token: "r", expires_in: 60 };
    const wrong = [{}, [], null, { ...whole, access_token: "" }, { ...whole, refresh_token: 1 }, { ...whole, expires_in: "60" }];
    for (const body of [...wrong, { mfa_required: true }]) {
      const client = clientOf(() => Response.json(body));
      await assert.rejects(client.signIn("ann@example.com", "x"), InvalidResponse);
      assert.equal(await client.isSignedIn(), false);
    }
    await assert.rejects(clientOf(() => new Response("<html>")).signIn("a", "x"), InvalidResponse);
  },

  async registryTakesTheServiceOfExactlyThisName() {
    const respond: Respond = (request) => {
      const services = [{ id: "1", name: "payments" }, { id: "2", name: "Payments" }];
      if (pathOf(request).endsWith("/services")) return Response.json({ services });
      const key = { id: "k", name: "Live", type: "api_key", secret: "sk-1", expires_at: null, metadata: {} };
      return pathOf(request).endsWith("/2/credentials") ? Response.json({ base_url: "x", credentials: [key] }) : issued();
    };
    const fetch = fetchOf(respond);
    const registry = new Registry(baseUrl, new ClientCredentials({ baseUrl, clientId: "c", clientSecret: "s", fetch }));
    const key = await registry.credential("Payments", "Live");
    assert.equal(key.secret, "sk-1");
    assert.ok(!`${inspect(key)}${JSON.stringify(key)}`.includes("sk-1"));
    await assert.rejects(registry.credentials("PAYMENTS"), /no service/);
  },

  stepsShowNoSecrets() {
    const said = { mfa_required: true, mfa_token: "m-1", methods: [], expires_in: 60, enrollment_ticket: "e-1" } as const;
    const step = new SecondStep(clientOf(issued), "ann@example.com", { ...said, methods: [] });
    assert.deepEqual([step.mfaToken, step.enrollmentTicket], ["m-1", "e-1"]);
    assert.doesNotMatch(inspect(step) + JSON.stringify(step), /m-1|e-1/);
  },

  async callbackRunsAfterTheRefreshAndForRemovedTokensOnly() {
    const rejecting = () => Response.json({ error: "invalid_grant" }, { status: 400 });
    const found: Promise<unknown>[] = [];
    const client = clientOf(rejecting, kept(0), () => found.push(client.accessToken().catch(({ message }) => message)));
    await assert.rejects(client.accessToken(), SignedOut);
    assert.deepEqual(await Promise.all(found), ["No user is signed in."]);
    const storage = kept(0);
    let called = 0;
    const replaced = clientOf(
      () => {
        storage.save({ accessToken: "b", refreshToken: "another sign-in", expiresAt: LATER });
        return rejecting();
      },
      storage,
      () => (called += 1),
    );
    await assert.rejects(replaced.accessToken(), SignedOut);
    assert.deepEqual([called, await replaced.accessToken()], [0, "b"]);
  },

  async stepUpKeepsTheRefreshTokenOfARefreshMeanwhile() {
    // The step-up reads the tokens; a refresh runs before it writes them.
    let tokens: Tokens | undefined = { accessToken: "a", refreshToken: "r0", expiresAt: LATER };
    const reads: (() => void)[] = [];
    let isSlow = false;
    const storage: TokenStorage = {
      async load() {
        const seen = tokens;
        if (isSlow) await new Promise<void>((resolve) => reads.push(resolve));
        return seen;
      },
      async save(fresh) {
        tokens = fresh;
      },
    };
    const client = clientOf((request) => {
      if (pathOf(request) === "/authmgr/token") return Response.json({ access_token: "b", refresh_token: "r1", expires_in: 60 });
      isSlow = true;
      return Response.json({ access_token: "s", proof_token: "p", expires_in: 60 });
    }, storage);
    const stepped = client.stepUp({ password: "x" });
    while (reads.length < 1) await new Promise(setImmediate);
    isSlow = false;
    tokens = { accessToken: "a", refreshToken: "r0", expiresAt: 0 };
    const refreshed = client.accessToken();
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
    reads.forEach((end) => end());
    await Promise.all([stepped, refreshed]);
    assert.equal((tokens as Tokens).refreshToken, "r1");
  },

  async tokensAreSavedInsideTheLockOfTheStorage() {
    let isHeld = false;
    const saves: boolean[] = [];
    class Locked extends MemoryStorage {
      override save(tokens: Tokens | undefined): void {
        saves.push(isHeld);
        super.save(tokens);
      }
      async exclusively<T>(work: () => Promise<T>): Promise<T> {
        assert.equal(isHeld, false);
        isHeld = true;
        return work().finally(() => (isHeld = false));
      }
    }
    const body = { access_token: "b", refresh_token: "r1", expires_in: 60, proof_token: "p" };
    const client = clientOf(() => Response.json(body), new Locked({ accessToken: "a", refreshToken: "r", expiresAt: 0 }));
    await client.stepUp({ password: "x" });
    await client.signOut();
    await client.accept(body);
    assert.deepEqual(saves, [true, true, true, true]);
  },

  async stepUpIsTriedOnce() {
    for (const [fields, paths] of [
      ['max_age=900, acr_values="aal2"', ["/authmgr/profile/password", "/authmgr/step-up", "/authmgr/profile/password"]],
      ['acr_values="aal2"', ["/authmgr/profile/password"]],
    ] as const) {
      const asked: string[] = [];
      const headers = { "WWW-Authenticate": `Bearer error="insufficient_user_authentication", ${fields}` };
      const body = { code: "insufficient_user_authentication", message: "No." };
      const client = clientOf((request) => {
        asked.push(pathOf(request));
        if (pathOf(request) !== "/authmgr/step-up") return Response.json(body, { status: 401, headers });
        return Response.json({ access_token: "b", expires_in: 60, proof_token: "p" });
      }, kept());
      const { log } = console;
      console.log = () => undefined;
      await assert.rejects(changePassword(client, "new", { current_password: "old" }), StepUpRequired);
      console.log = log;
      assert.deepEqual(asked, paths);
    }
  },

  async retryAfterIsSecondsOrADate() {
    const later = new Date(now() + 3_600_000).toUTCString();
    for (const [header, least, most] of [["7", 7, 7], [later, 3500, 3600]] as const) {
      const response = () => new Response(null, { status: 503, headers: { "Retry-After": header } });
      const error = await clientOf(response).signIn("a", "x").catch((error: { retryAfter: number }) => error);
      const { retryAfter } = error as { retryAfter: number };
      assert.ok(retryAfter >= least && retryAfter <= most);
    }
  },

  badWebhookSecretIsAnErrorOfTheConfiguration() {
    for (const secret of ["", "whsec_?"]) assert.throws(() => verifyWebhook(secret, "{}", {}), TypeError);
  },
};

const results: Record<string, string | null> = {};
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    results[name] = null;
  } catch (error) {
    results[name] = inspect(error);
  }
}
console.log(JSON.stringify(results));
