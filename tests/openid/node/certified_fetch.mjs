// `fetch` over connections with a certificate of the client, which that of Node.js does not offer.
import * as https from "node:https";

export const certifiedFetch = (connection) => (address, { method, headers, body }) =>
  new Promise((resolve, reject) => {
    const sent = { method, headers: Object.fromEntries(new Headers(headers)), ...connection };
    const request = https.request(address, sent, async (response) => {
      const content = Buffer.concat(await response.toArray());
      resolve(new Response(content, { status: response.statusCode, headers: response.headers }));
    });
    request.on("error", reject);
    request.end(body?.toString());
  });
