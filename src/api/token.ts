// POST /token: exchanges the credential user's login and password for a token.
import { unauthorized } from '../auth/access.ts';
import { json, type Reply } from '../http/reply.ts';
import type { Context, Services } from '../route.ts';

/** @throws HttpError 401 unless the body has the right pair, 429 after too many failures */
export function issueToken({ body, client }: Context, services: Services): Reply {
  if (!isRightPair(body, client, services)) throw unauthorized('Bearer realm="token"'); // 3.11
  const token = services.tokens.issue();
  return { ...json(JSON.stringify({ token })), cacheControl: 'no-store' }; // 3.2
}

/** True for the right pair. A missing body and values of other types count as wrong (3.3). */
function isRightPair(body: unknown, client: string, { limiter, credential }: Services): boolean {
  if (typeof body !== 'object' || body === null) return false;
  const { id, pw } = body as { id?: unknown; pw?: unknown };
  // Without a pair there is nothing to check, so nothing counts as a failure.
  if (typeof id !== 'string' || typeof pw !== 'string') return false; // 3.13
  return limiter.attempt(client, () => credential.matches(id, pw));
}
