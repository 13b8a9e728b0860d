// Handlers that do not use the store.
import { unauthorized } from '../auth/access.ts';
import { json, text } from '../http/reply.ts';
import type { RouteHandler } from '../route.ts';

export const greet: RouteHandler = () => text(200, 'Hello! This is the Notes and Users API.\n'); // 3.1
export const readNote: RouteHandler = (_context, { note }) => json(note); // 3.5
export const greetCaller: RouteHandler = (_context, { credential }) =>
  text(200, `Welcome, ${credential.name}.\n`); // 3.9
export const showApi: RouteHandler = ({ headers }, { openapi }) => openapi(headers); // 8.1, 8.3
export const showDocs: RouteHandler = ({ headers }, { docs }) => docs(headers); // 8.2, 8.3

/** @throws HttpError 401 unless the body has the right pair, 429 after too many failures */
export const issueToken: RouteHandler = ({ body, client }, { credential, limiter, tokens }) => {
  const { id, pw } = (body ?? {}) as { id?: unknown; pw?: unknown }; // 3.3
  // Without a pair there is nothing to check, so nothing counts as a failure (3.13).
  const hasPair = typeof id === 'string' && typeof pw === 'string';
  const isRight = hasPair && limiter.attempt(client, () => credential.matches(id, pw));
  if (!isRight) throw unauthorized('Bearer realm="token"'); // 3.11
  return { ...json(JSON.stringify({ token: tokens.issue() })), cacheControl: 'no-store' }; // 3.2
};
