// The entity tags of users, and the conditions of requests on users (RFC 9110 §8.8.3, §13.1). The tag of a user
// is its version in quotes. It is a strong validator, because the representation of a version never changes.
import { parseTags } from '../http/conditional.ts';
import type { Context } from '../route.ts';
import { ALWAYS, type Condition, type User, type Versions } from '../user.ts';

export function entityTag(user: User): string {
  return `"${user.version}"`; // 4.16
}

/** Returns the condition that `If-Match` and `If-None-Match` express (4.8). */
export function condition(headers: Context['headers']): Condition {
  const { 'if-match': match = '*', 'if-none-match': noneMatch = '' } = headers;
  if (match === '*' && noneMatch === '') return ALWAYS;
  return { oneOf: parseVersions(match, 'strong'), noneOf: parseVersions(noneMatch, 'weak') };
}

function parseVersions(header: string, comparison: 'strong' | 'weak'): Versions {
  const tags = parseTags(header, comparison);
  return tags === 'any' ? tags : tags.filter((tag) => /^[1-9][0-9]{0,15}$/.test(tag)).map(Number);
}
