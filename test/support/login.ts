// Logs in at POST /token, and reads tokens.
import assert from 'node:assert/strict';
import { type HttpResponse, send } from './client.ts';
import { PASSWORD, type Program, USER } from './program.ts';

export function login({ url }: Pick<Program, 'url'>, pw = PASSWORD): Promise<HttpResponse> {
  return send(`${url}/token`, { method: 'POST', body: { id: USER, pw } });
}

export async function token(program: Pick<Program, 'url'>, pw = PASSWORD): Promise<string> {
  const response = await login(program, pw);
  assert.equal(response.status, 200, response.body);
  return JSON.parse(response.body).token;
}

export function claims(jwt: string): Record<string, unknown> {
  return JSON.parse(Buffer.from(jwt.split('.')[1]!, 'base64url').toString());
}
