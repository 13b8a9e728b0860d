// The Authorization header (RFC 9110 §11.6.2, contract 3.6) and what a refusal answers with.
import { HttpError } from '../http/errors.ts';

/** The two parts of an Authorization header. */
export interface Authorization {
  /** In lower case: the scheme's word is taken in any case (RFC 9110 §11.1). */
  readonly scheme: string;
  readonly credentials: string;
}

/** @returns undefined unless the header is exactly two parts split by one space. */
export function parseAuthorization(header: string): Authorization | undefined {
  // 3.6
  const space = header.indexOf(' ');
  if (space < 1 || space === header.length - 1 || header.includes(' ', space + 1)) return undefined;
  return {
    scheme: header.slice(0, space).toLowerCase(), // 3.6
    credentials: header.slice(space + 1),
  };
}

/** 401 with the challenge that RFC 9110 §15.5.2 demands. */
export function unauthorized(challenge: string): HttpError {
  return new HttpError(401, 'Unauthorized', ['WWW-Authenticate', challenge]);
}

// token68 = 1*( ALPHA / DIGIT / "-" / "." / "_" / "~" / "+" / "/" ) *"="   (RFC 9110 §11.2)
const TOKEN68 = /^[A-Za-z0-9\-._~+/]+=*$/;

/**
 * The Bearer challenge (RFC 6750 §3). `error` goes only to a client that sent a single Bearer
 * credential of right form; one that sent nothing learns nothing.
 */
export function bearerChallenge(realm: string, sent: Authorization | undefined): string {
  // 3.8
  const challenge = `Bearer realm="${realm}"`;
  const isWellFormed = sent?.scheme === 'bearer' && TOKEN68.test(sent.credentials);
  return isWellFormed ? `${challenge}, error="invalid_token"` : challenge;
}

/** The Basic challenge (RFC 7617 §2, §2.1). */
export const BASIC_CHALLENGE = 'Basic realm="protected", charset="UTF-8"'; // 3.10
