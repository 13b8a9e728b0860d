// Logs in at POST /token, and reads tokens.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { type HttpResponse, send } from './client.ts';
import { PASSWORD, type Program, USER } from './program.ts';

export function login(
  program: Program,
  pw = PASSWORD,
  id = USER,
  headers: Record<string, string> = {},
): Promise<HttpResponse> {
  return send(`${program.url}/token`, { method: 'POST', body: { id, pw }, headers });
}

export async function token(program: Program, pw = PASSWORD, id = USER): Promise<string> {
  const response = await login(program, pw, id);
  assert.equal(response.status, 200, response.body);
  return JSON.parse(response.body).token;
}

export function claims(jwt: string): Record<string, unknown> {
  return JSON.parse(Buffer.from(jwt.split('.')[1]!, 'base64url').toString());
}

/** Signs the claims of the token with another secret. */
export function resign(jwt: string, secret: string): string {
  const signed = jwt.slice(0, jwt.lastIndexOf('.'));
  return `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`;
}
