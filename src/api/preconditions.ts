// The entity tags of users, and the conditions of requests on users (RFC 9110 §8.8.3, §13.1). The tag of a user
// is the number of its representation and its version: `"1-3"`. It is a strong validator, because both together
// determine the bytes of the body.
import { parseTags } from '../http/conditional.ts';
import type { Context } from '../route.ts';
import { ALWAYS, type Condition, REPRESENTATION, type User, type Versions } from '../user.ts';

// If-Match prevents lost updates, so it compares versions only: during a rolling upgrade, a tag of the other
// version of the service matches too. A 304 confirms a body, so If-None-Match compares the whole tag.
const ANY_REPRESENTATION = /^(?:[1-9][0-9]*-)?([1-9][0-9]{0,15})$/;
const THIS_REPRESENTATION = new RegExp(`^${REPRESENTATION}-([1-9][0-9]{0,15})$`);

export function entityTag(user: User): string {
  return `"${REPRESENTATION}-${user.version}"`; // 4.16
}

/** Returns the condition that `If-Match` and `If-None-Match` express (4.8). */
export function condition(headers: Context['headers']): Condition {
  const { 'if-match': match = '*', 'if-none-match': noneMatch = '' } = headers;
  if (match === '*' && noneMatch === '') return ALWAYS;
  const oneOf = versionsOf(parseTags(match, 'strong'), ANY_REPRESENTATION);
  const noneOf = versionsOf(parseTags(noneMatch, 'weak'), THIS_REPRESENTATION);
  return { oneOf, noneOf };
}

function versionsOf(tags: 'any' | string[], form: RegExp): Versions {
  if (tags === 'any') return tags;
  return tags.flatMap((tag) => Number(form.exec(tag)?.[1]) || []);
}
