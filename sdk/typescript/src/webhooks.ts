/** Verify webhooks (https://www.standardwebhooks.com). */

import { Webhook } from "standardwebhooks";
import { WebhookInvalid } from "./errors.js";

export { WebhookInvalid } from "./errors.js";

/** One event. A message can arrive twice: remember `id`. */
export interface WebhookEvent {
  id: string;
  type: string;
  timestamp: string;
  data: Record<string, unknown>;
}

/**
 * Verify signature and time of a request and return its event. `body` are the bytes as received (Express:
 * `express.raw`). Throws WebhookInvalid, and TypeError if the secret is none: that is an error of the configuration.
 */
export function verifyWebhook(
  secret: string,
  body: Uint8Array | string,
  headers: Headers | Readonly<Record<string, string | string[] | undefined>>,
): WebhookEvent {
  let webhook: Webhook;
  try {
    webhook = new Webhook(secret);
  } catch (error) {
    throw new TypeError("The secret of the webhook is not valid. Use the one that the platform has shown.", { cause: error });
  }
  const read = (name: string) => {
    const value = headers instanceof Headers ? headers.get(name) : headers[name];
    return typeof value === "string" ? value : "";
  };
  const names = ["webhook-id", "webhook-timestamp", "webhook-signature"] as const;
  const stated = Object.fromEntries(names.map((name) => [name, read(name)]));
  const text = typeof body === "string" ? body : new TextDecoder().decode(body);
  try {
    const said = webhook.verify(text, stated) as Omit<WebhookEvent, "id">;
    return { id: read("webhook-id"), type: said.type, timestamp: said.timestamp, data: said.data };
  } catch (error) {
    throw new WebhookInvalid("The signature of the webhook is missing, wrong or too old.", { cause: error });
  }
}
