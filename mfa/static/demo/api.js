// Calls of the platform's API: JSON in, JSON out, refusals as errors with the message that the API gives.

export class Refusal extends Error {
  constructor(status, body) {
    const details = Object.values(body.details ?? {}).flat().join(" ");
    super([body.message ?? "The server did not answer.", details].join(" ").trim());
    this.status = status;
    this.code = body.code;
  }
}

let token = null;

// The token stays in this variable: what is in localStorage can be read by any script that gets into the page.
export function useToken(accessToken) {
  token = accessToken;
}

export async function call(method, path, body, ticket) {
  const headers = { Accept: "application/json" };
  // An enrollment ticket or an enrollment pass.
  if (ticket) headers["X-Enrollment-Ticket"] = ticket;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (token) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refusal(answer.status, found);
  return found;
}

export const post = (path, body, ticket) => call("POST", path, body, ticket);
export const get = (path) => call("GET", path);
