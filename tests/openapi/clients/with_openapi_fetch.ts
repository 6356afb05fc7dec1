// What an application writes with the types of openapi-typescript and openapi-fetch.
import createClient from "openapi-fetch";
import type { paths } from "./schema.ts";

const { base, admin, user, client_id, tenant_id, password } = JSON.parse(process.argv[2] ?? "");
const api = createClient<paths>({ baseUrl: base });

const first = await api.POST("/uflow/auth/enduser/login", { body: { client_id, email: user, password } });
if (!first.data?.mfa_required) throw new Error("A user with a second factor got tokens.");
const methods: string[] = first.data.methods;

const second = await api.POST("/uflow/admin/auth/login", { body: { username: admin, password } });
if (!second.data || second.data.mfa_required) throw new Error("An admin without a second factor got no tokens.");
const headers = { Authorization: `Bearer ${second.data.access_token}` };

const query = { tenant_id, email: user, page: 1, limit: 5 };
const list = await api.GET("/uflow/user/enduser/list", { params: { query }, headers });
const emails = list.data?.users.map((each) => each.email);

const failed = await api.POST("/uflow/auth/enduser/login", { body: { client_id, email: user, password: "wrong" } });
// @ts-expect-error The operation has no such code.
if (failed.error?.code === "no_such_code") throw new Error();
const rejected: boolean = failed.error?.code === "credentials_invalid";

console.log(JSON.stringify({ methods, total: list.data?.total, emails, rejected }));
