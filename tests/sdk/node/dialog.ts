// The other side is workspace.py: it sends one line with what is given, answers questions, and takes the result.
import { createInterface } from "node:readline";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const read = async (): Promise<unknown> => JSON.parse((await lines.next()).value as string);
const say = (said: object): void => console.log(JSON.stringify(said));

export interface Given {
  flow: string;
  base: string;
  tenant_id: string;
  client_id: string;
  email: string;
  password: string;
  [name: string]: string;
}

export const given = (await read()) as Given;

/** Have the test do something, such as reading the message that was sent, and return what it says. */
export async function ask(question: string): Promise<string> {
  say({ question });
  return (await read()) as string;
}

/** End with a result. */
export function report(result: unknown): never {
  say({ result });
  process.exit();
}

/** The error of a call that must fail. */
export async function errorFrom(call: Promise<unknown>): Promise<Error & Record<string, unknown>> {
  const done = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(done instanceof Error)) throw new Error("The call did not fail.");
  return done as Error & Record<string, unknown>;
}
