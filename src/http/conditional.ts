// Entity tags and conditional requests (RFC 9110 §8.8.3, §13.1). The tag of a user is its version in
// quotes. It is a strong validator, because the representation of a version never changes.
import type { IncomingHttpHeaders } from 'node:http';
import { ALWAYS, type Condition, matches, type User, type Versions } from '../user.ts';

export function entityTag(user: User): string {
  return `"${user.version}"`; // 4.16
}

/** True if an `If-None-Match` header lists the tag (RFC 9110 §13.1.2). */
export function listsTag(tag: string, header = ''): boolean {
  return matches(parseTags(header, 'weak'), tag.slice(1, -1));
}

/** Returns the condition that `If-Match` and `If-None-Match` express (4.8). */
export function condition(headers: IncomingHttpHeaders): Condition {
  const { 'if-match': match = '*', 'if-none-match': noneMatch = '' } = headers;
  if (match === '*' && noneMatch === '') return ALWAYS;
  return { oneOf: parseVersions(match, 'strong'), noneOf: parseVersions(noneMatch, 'weak') };
}

function parseVersions(header: string, comparison: 'strong' | 'weak'): Versions {
  const tags = parseTags(header, comparison);
  return tags === 'any' ? tags : tags.filter((tag) => /^[1-9][0-9]{0,15}$/.test(tag)).map(Number);
}

// entity-tag = [ "W/" ] DQUOTE *( %x21 / %x23-7E / obs-text ) DQUOTE   (RFC 9110 §8.8.3)
// A list can have empty elements (§5.6.1).
const ENTITY_TAG = /[ \t,]*(W\/)?"([\x21\x23-\x7e\x80-\xff]*)"[ \t]*(?=,|$)/gy;

/** Returns the tags before a malformed one, weak tags in a weak comparison only (§8.8.3.2). */
function parseTags(header: string, comparison: 'strong' | 'weak'): 'any' | string[] {
  if (header.trim() === '*') return 'any';
  const tags: string[] = [];
  for (const [, weak, tag = ''] of header.matchAll(ENTITY_TAG)) {
    if (comparison === 'weak' || !weak) tags.push(tag);
  }
  return tags;
}
