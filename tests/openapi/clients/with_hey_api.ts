// What an application writes with the client of @hey-api/openapi-ts.
import { client } from "./hey_api/client.gen.ts";
import { listEndUsers, login, loginAdmin } from "./hey_api/index.ts";

const { base, admin, user, client_id, tenant_id, password } = JSON.parse(process.argv[2] ?? "");
client.setConfig({ baseUrl: base });

const first = await login({ body: { client_id, email: user, password } });
if (!first.data?.mfa_required) throw new Error("A user with a second factor got tokens.");
const methods: string[] = first.data.methods;

const second = await loginAdmin({ body: { username: admin, password } });
if (!second.data || second.data.mfa_required) throw new Error("An admin without a second factor got no tokens.");
const auth: string = second.data.access_token;

const list = await listEndUsers({ auth, query: { tenant_id, email: user, page: 1, limit: 5 } });
const emails = list.data?.users.map((each) => each.email);

const failed = await login({ body: { client_id, email: user, password: "wrong" } });
// @ts-expect-error The operation has no such code.
if (failed.error?.code === "no_such_code") throw new Error();
const rejected: boolean = failed.error?.code === "credentials_invalid";

console.log(JSON.stringify({ methods, total: list.data?.total, emails, rejected }));
