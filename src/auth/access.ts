// Who may use a route: the pipeline's second step.
import {
  type Authorization,
  BASIC_CHALLENGE,
  bearerChallenge,
  parseAuthorization,
  unauthorized,
} from './authorization.ts';
import type { Credential } from './credential.ts';
import type { Tokens } from './jwt.ts';
import type { FailureLimiter } from './limiter.ts';

/** What a route asks of its caller; `users` is `public` or `bearer`, as PROTECT_USERS says. */
export type Access = 'public' | 'basic' | 'bearer' | 'users';

/** What credentials are checked with. */
export interface AuthServices {
  readonly credential: Credential;
  readonly tokens: Tokens;
  readonly limiter: FailureLimiter;
  readonly protectUsers: boolean;
}

/**
 * Authenticates the request.
 * `header` is the Authorization header when there is exactly one.
 * @throws HttpError 401 with the route's challenge, or 429
 */
export function authenticate(
  access: Access,
  header: string | undefined,
  client: string,
  auth: AuthServices,
): void {
  if (access === 'public' || (access === 'users' && !auth.protectUsers)) return; // 4.15
  const sent = header === undefined ? undefined : parseAuthorization(header);
  if (access === 'basic') {
    if (!isBasic(sent, client, auth)) throw unauthorized(BASIC_CHALLENGE);
    return;
  }
  if (sent?.scheme === 'bearer' && auth.tokens.verify(sent.credentials)) return;
  throw unauthorized(bearerChallenge(access === 'users' ? 'users' : 'notes', sent));
}

function isBasic(
  sent: Authorization | undefined,
  client: string,
  { credential, limiter }: AuthServices,
): boolean {
  // Without credentials nothing was checked, so nothing counts as a failure (contract 3.13).
  if (sent?.scheme !== 'basic') return false; // 3.13
  return limiter.attempt(client, () => credential.matchesBasic(sent.credentials));
}
