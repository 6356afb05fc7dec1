// better-auth with e-mail and password, sessions in PostgreSQL, on Node's own HTTP server: one process for each core.
// Its defaults, but for what makes it comparable: the platform's argon2id (by @node-rs/argon2), no rate limit, no telemetry.
import cluster from "node:cluster";
import http from "node:http";
import { verify, hash } from "@node-rs/argon2";
import { betterAuth } from "better-auth";
import { getMigrations } from "better-auth/db/migration";
import pg from "pg";

const { PORT, PEER_DATABASE_URL, WEB_WORKERS } = process.env;
const base = `http://127.0.0.1:${PORT}`;
const options = {
  baseURL: base,
  secret: "of a peer that keeps nothing secret, long enough",
  // Eight callers at most: a pool of eight for each process never waits.
  database: new pg.Pool({ connectionString: PEER_DATABASE_URL, max: 8 }),
  emailAndPassword: {
    enabled: true,
    password: {
      hash: (password) => hash(password, { memoryCost: 19456, timeCost: 2, parallelism: 1 }),
      verify: ({ hash: stored, password }) => verify(stored, password),
    },
  },
  rateLimit: { enabled: false },
  telemetry: { enabled: false },
  logger: { level: "error" },
};

if (cluster.isPrimary && process.argv[2] === "migrate") {
  const { runMigrations } = await getMigrations(options);
  await runMigrations();
  await options.database.end();
} else if (cluster.isPrimary) {
  for (let number = 0; number < Number(WEB_WORKERS); number += 1) cluster.fork();
  process.on("SIGTERM", () => {
    for (const worker of Object.values(cluster.workers)) worker.kill("SIGKILL");
    process.exit(0);
  });
} else {
  const auth = betterAuth(options);
  // The adapter of the library streams the body; the client of the benchmark reads by Content-Length.
  const server = http.createServer(async (request, response) => {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    const body = pieces.length ? Buffer.concat(pieces) : undefined;
    const headers = new Headers(Object.entries(request.headers).map(([name, value]) => [name, String(value)]));
    const answer = await auth.handler(new Request(base + request.url, { method: request.method, headers, body }));
    const sent = Buffer.from(await answer.arrayBuffer());
    const set = answer.headers.getSetCookie();
    const plain = Object.fromEntries([...answer.headers].filter(([name]) => name !== "set-cookie"));
    response.writeHead(answer.status, { ...plain, ...(set.length && { "set-cookie": set }), "content-length": sent.length });
    response.end(sent);
  });
  server.keepAliveTimeout = 0;
  server.listen(Number(PORT), "127.0.0.1");
}
