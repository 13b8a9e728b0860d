// POST /token (contract 3.2 to 3.4): the credential pair for a token that is valid for an hour.
import { unauthorized } from '../auth/authorization.ts';
import { json, type Reply } from '../http/reply.ts';
import type { Context, Services } from '../route.ts';

/**
 * 200, `{"token"}`, not to be cached (RFC 6749 §5.1).
 * @throws HttpError 401 for whatever is not the right pair, 429 after too many wrong ones
 */
export function issueToken({ body, client }: Context, services: Services): Reply {
  // 3.2
  if (!isRightPair(body, client, services)) throw unauthorized('Bearer realm="token"'); // 3.11
  const token = services.tokens.issue();
  return { ...json(JSON.stringify({ token })), cacheControl: 'no-store' };
}

function isRightPair(
  // 3.3
  body: unknown,
  client: string,
  { limiter, credential }: Services,
): boolean {
  if (typeof body !== 'object' || body === null) return false;
  const { id, pw } = body as { id?: unknown; pw?: unknown };
  // Without a pair nothing is checked, so nothing counts as a failure (contract 3.13).
  if (typeof id !== 'string' || typeof pw !== 'string') return false; // 3.13
  return limiter.attempt(client, () => credential.matches(id, pw));
}
