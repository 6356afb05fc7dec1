// What applications do with sdk/typescript; the tests choose a flow by its name.
import { IdentityClient, MemoryStorage, type SecondStep, type Tokens } from "identity-platform-sdk";
import { ClientCredentials, Registry } from "identity-platform-sdk/server";
import { ask, errorFrom, given, report } from "./dialog.ts";

const CALLS = 20;
const requests: string[] = [];
const saved: (Tokens | undefined)[] = [];
let signedOut = 0;

class Recorded extends MemoryStorage {
  override save(tokens: Tokens | undefined): void {
    saved.push(tokens);
    super.save(tokens);
  }
}

const recorded: typeof fetch = async (input, init) => {
  requests.push(new URL(input instanceof Request ? input.url : input).pathname);
  return fetch(input, init);
};
const refreshes = (): number => requests.filter((path) => path === "/authmgr/token").length;
const storage = new Recorded();
const named = { baseUrl: given.base, tenantId: given.tenant_id, clientId: given.client_id };
const client = new IdentityClient({ ...named, storage, fetch: recorded, onSignedOut: () => (signedOut += 1) });

const profile = async (of = client): Promise<string> => (await of.api.GET("/authmgr/profile")).data?.email ?? "";

async function secondStep(): Promise<SecondStep> {
  const step = await client.signIn(given.email, given.password);
  if (!step) throw new Error("No second step is missing.");
  return step;
}

/** Make the access token useless, before its end or by it. */
function age(cause: string): void {
  const tokens = storage.load();
  if (!tokens) throw new Error("No user is signed in.");
  const aged = cause === "expired" ? { expiresAt: 0 } : { accessToken: "revoked" };
  MemoryStorage.prototype.save.call(storage, { ...tokens, ...aged });
}

const flows: Record<string, () => Promise<unknown>> = {
  async secondSteps() {
    const step = await secondStep();
    const { name, status, message, requestId } = await errorFrom(step.totp(await ask("wrong code")));
    const emails = [];
    await step.totp(await ask("code"));
    emails.push(await profile());
    await client.signOut();
    const { name: afterwards } = await errorFrom(profile());
    await (await secondStep()).backupCode(await ask("backup code"));
    emails.push(await profile());
    const third = await secondStep();
    await third.sendSms();
    await third.sms(await ask("sent code"));
    emails.push(await profile());
    return { methods: step.methods, error: { name, status, message, has_id: Boolean(requestId) }, afterwards, emails };
  },

  async refreshRace() {
    await client.signIn(given.email, given.password);
    age(given["cause"] ?? "");
    const emails = await Promise.all(Array.from({ length: CALLS }, () => profile()));
    return { emails: [...new Set(emails)], calls: emails.length, refreshes: refreshes(), saved: saved.length };
  },

  async failedRefresh() {
    await client.signIn(given.email, given.password);
    await ask("end sessions");
    const errors = await Promise.all(Array.from({ length: CALLS }, () => errorFrom(profile())));
    const names = [...new Set(errors.map(({ name }) => name))];
    return { names, refreshes: refreshes(), signedOut, is_signed_in: await client.isSignedIn() };
  },

  async suspendedTenant() {
    await client.signIn(given.email, given.password);
    age("expired");
    await ask("suspended");
    const { name, status, code } = await errorFrom(profile());
    await ask("active");
    return { error: { name, status, code }, signedOut, email: await profile() };
  },

  async unavailable() {
    const asked: string[] = [];
    const unavailable = new IdentityClient({
      ...named,
      storage: new MemoryStorage({ accessToken: "a", refreshToken: "r", expiresAt: 0 }),
      fetch: async (input) => {
        asked.push(new URL(input as string).pathname);
        return new Response(null, { status: 503, statusText: "Service Unavailable", headers: { "Retry-After": "7" } });
      },
    });
    const errors = await Promise.all(Array.from({ length: CALLS }, () => errorFrom(profile(unavailable))));
    const found = errors.map(({ name, status, code, retryAfter }) => [name, status, code, retryAfter].join(" "));
    return { asked, errors: [...new Set(found)], is_signed_in: await unavailable.isSignedIn() };
  },

  async signOutDuringRefresh() {
    const kept = new MemoryStorage({ accessToken: "a", refreshToken: "r", expiresAt: 0 });
    const leaving = new IdentityClient({
      ...named,
      storage: kept,
      fetch: async () => {
        kept.save(undefined);
        return Response.json({ access_token: "b", refresh_token: "s", expires_in: 60 });
      },
    });
    return { token: await leaving.accessToken(), is_signed_in: await leaving.isSignedIn() };
  },

  async stepUp() {
    await client.signIn(given.email, given.password);
    const { email, tenant_id } = given;
    const [first_code = "", backup_code = ""] = (await ask(`enroll with ${await client.accessToken()}`)).split(" ");
    const regenerate = (proof: { backup_code?: string }) =>
      client.api.POST("/webauthn/totp/regenerateBackupCodes", { body: { email, tenant_id, ...proof } });
    const { name, maxAge, acrValues } = await errorFrom(regenerate({}));
    // The factor is newer than the session: the password comes first.
    await client.stepUp({ password: given.password });
    const proof_token = await client.stepUp({ backup_code: first_code });
    const untouched = refreshes();
    const codes = (await regenerate({ backup_code })).data?.backup_codes.length;
    const body = { new_password: "another horse 8 battery", proof_token };
    await client.api.POST("/authmgr/profile/password", { body });
    age("rejected");
    return { error: { name, maxAge, acrValues }, untouched, codes, email: await profile() };
  },

  async forgottenPassword() {
    await client.forgotPassword(given.email);
    await client.resetPassword(await ask("mailed token"), "another horse 8 battery");
    const { name, status } = await errorFrom(client.signIn(given.email, given.password));
    return { error: { name, status }, step: (await client.signIn(given.email, "another horse 8 battery")) ?? null };
  },

  async errors() {
    const found = [];
    const responses = JSON.parse(given["responses"] ?? "") as { status: number; phrase: string; body: string }[];
    for (const { status, phrase, body } of responses) {
      const headers = { "X-Request-ID": "r1", "Retry-After": "Wed" };
      const fetch = async () => new Response(body, { status, statusText: phrase, headers });
      const other = new IdentityClient({ ...named, fetch });
      const { code, message, details, requestId, retryAfter } = await errorFrom(other.signIn("a@example.com", "x"));
      found.push({ code, message, details, requestId, retryAfter: retryAfter ?? null });
    }
    return found;
  },

  async backEnd() {
    const service = given["service"] ?? "";
    const secret = { clientId: given["confidential"] ?? "", clientSecret: given["secret"] ?? "" };
    const application = new ClientCredentials({ baseUrl: given.base, ...secret, fetch: recorded });
    const statuses = await Promise.all(
      Array.from({ length: 3 }, async () => (await application.fetch(`${given.base}/authmgr/validate`)).status),
    );
    const once = refreshes();
    await ask(`revoke ${await application.token()}`);
    const now = Date.now;
    Date.now = () => now() + 5000; // a new token is not replaced
    statuses.push((await application.fetch(`${given.base}/authmgr/validate`)).status);
    const twice = refreshes();
    const registry = new Registry(given.base, application);
    const { secret: value, baseUrl, metadata } = await registry.credential(service, "Live key");
    const unknown = [registry.credential("Unknown service", "Live key"), registry.credential(service, "x")];
    const missing = await Promise.all(unknown.map(errorFrom));
    const wrong = new ClientCredentials({ baseUrl: given.base, ...secret, clientSecret: "ics_wrong" });
    const greedy = new ClientCredentials({ baseUrl: given.base, ...secret, scope: "admins:write" });
    const reading = new ClientCredentials({ baseUrl: given.base, ...secret, scope: "services:read" });
    const calls = [wrong.token(), greedy.token(), new Registry(given.base, reading).credentials(service)];
    const errors = (await Promise.all(calls.map(errorFrom))).map(({ status, code }) => [status, code]);
    return { statuses, once, twice, value, baseUrl, metadata, missing: missing.map(({ name }) => name), errors };
  },
};

report(await flows[given.flow]?.());
