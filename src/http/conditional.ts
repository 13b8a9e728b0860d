// Entity tags and conditional requests (RFC 9110 §8.8.3, §13.1). The tag of a user is the number
// of its representation and its version: `"1-3"`. It is a strong validator, because both together determine
// the bytes of the body.
import type { IncomingHttpHeaders } from 'node:http';
import {
  ALWAYS,
  type Condition,
  matches,
  REPRESENTATION,
  type User,
  type Versions,
} from '../user.ts';

// If-Match prevents lost updates, so it compares versions only: during a rolling upgrade, a tag of the other
// version of the service matches too. A 304 confirms a body, so If-None-Match compares the whole tag.
const ANY_REPRESENTATION = /^(?:[1-9][0-9]*-)?([1-9][0-9]{0,15})$/;
const THIS_REPRESENTATION = new RegExp(`^${REPRESENTATION}-([1-9][0-9]{0,15})$`);

export function entityTag(user: User): string {
  return `"${REPRESENTATION}-${user.version}"`; // 4.16
}

/** True if an `If-None-Match` header lists the tag (RFC 9110 §13.1.2). */
export function listsTag(tag: string, header = ''): boolean {
  return matches(parseTags(header, 'weak'), tag.slice(1, -1));
}

/** Returns the condition that `If-Match` and `If-None-Match` express (4.8). */
export function condition(headers: IncomingHttpHeaders): Condition {
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
