// POST /token: exchanges the credential user's login and password for a token.
import { unauthorized } from '../auth/access.ts';
import { json } from '../http/reply.ts';
import type { RouteHandler } from '../route.ts';

/** @throws HttpError 401 unless the body has the right pair, 429 after too many failures */
export const issueToken: RouteHandler = ({ body, client }, { credential, limiter, tokens }) => {
  const { id, pw } = (body ?? {}) as { id?: unknown; pw?: unknown }; // 3.3
  // Without a pair there is nothing to check, so nothing counts as a failure (3.13).
  const hasPair = typeof id === 'string' && typeof pw === 'string';
  const isRight = hasPair && limiter.attempt(client, () => credential.matches(id, pw));
  if (!isRight) throw unauthorized('Bearer realm="token"'); // 3.11
  return { ...json(JSON.stringify({ token: tokens.issue() })), cacheControl: 'no-store' }; // 3.2
};
