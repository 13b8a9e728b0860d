// Authenticates a request against the access that its route requires (RFC 9110 §11).
import { HttpError } from '../http/errors.ts';
import type { Exchange } from '../http/exchange.ts';
import type { Credential } from './credential.ts';
import type { Tokens } from './jwt.ts';
import type { FailureLimiter } from './limiter.ts';

/** Credentials that a route requires; `bearerIfProtected`: a token, only if `PROTECT_USERS` is `true`. */
export type Access = 'none' | 'basic' | 'bearer' | 'bearerIfProtected';

export interface AuthServices {
  readonly credential: Credential;
  readonly tokens: Tokens;
  readonly limiter: FailureLimiter;
  readonly protectUsers: boolean;
}

/** @throws HttpError 401 with the challenge of the exchange's route, or 429 */
export function authenticate(access: Access, exchange: Exchange, auth: AuthServices): void {
  if (access === 'none' || (access === 'bearerIfProtected' && !auth.protectUsers)) return; // 4.15
  const scheme = access === 'basic' ? 'basic' : 'bearer';
  const sent = parseAuthorization(exchange.headers.authorization ?? ''); // 3.6
  // 3.13: a request without credentials of this scheme is not a failed check.
  if (sent?.scheme === scheme && isValid(sent, exchange.client, auth)) return;
  const [, realm = ''] = exchange.route.split('/', 2); // 3.19
  throw unauthorized(challenge(access, realm, sent));
}

function isValid(sent: Authorization, client: string, auth: AuthServices): boolean {
  if (sent.scheme === 'bearer') return auth.tokens.verify(sent.credentials);
  return auth.limiter.attempt(client, () => auth.credential.matchesBasic(sent.credentials));
}

/** The two parts of an Authorization header; the scheme in lower case (RFC 9110 §11.1). */
type Authorization = { readonly scheme: string; readonly credentials: string };

/** @returns undefined unless the header is two parts separated by one space. Node joins repeated headers, which have more. */
function parseAuthorization(header: string): Authorization | undefined {
  const [scheme = '', credentials, excess] = header.split(' ', 3);
  if (!credentials || excess !== undefined) return undefined; // 3.6
  return { scheme: scheme.toLowerCase(), credentials };
}

/** Returns a 401 with a challenge, which RFC 9110 §15.5.2 requires. */
export function unauthorized(challenge: string): HttpError {
  return new HttpError(401, 'Unauthorized', ['WWW-Authenticate', challenge]);
}

// token68 = 1*( ALPHA / DIGIT / "-" / "." / "_" / "~" / "+" / "/" ) *"="   (RFC 9110 §11.2)
const TOKEN68 = /^[A-Za-z0-9\-._~+/]+=*$/;

/** Returns the challenge for a request that sent these credentials (RFC 7617 §2, RFC 6750 §3). */
function challenge(access: Access, realm: string, sent: Authorization | undefined): string {
  if (access === 'basic') return `Basic realm="${realm}", charset="UTF-8"`; // 3.10
  // 3.8: only a client that sent a well-formed token learns that it is invalid.
  const isToken = sent?.scheme === 'bearer' && TOKEN68.test(sent.credentials);
  return isToken ? `Bearer realm="${realm}", error="invalid_token"` : `Bearer realm="${realm}"`;
}
