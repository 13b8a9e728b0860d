// Entity tags and conditional requests (RFC 9110 §8.8.3, §13.1). A user's tag is its version in
// quotes, a strong validator: the representation of one version never changes.
import type { IncomingHttpHeaders } from 'node:http';
import { ALWAYS, type Condition, type User, type Versions } from '../user.ts';

/** The strong entity tag of a user, quotes included. */
export function entityTag(user: User): string {
  // 4.16
  return `"${user.version}"`;
}

/** Whether the value of an `If-None-Match` lists the tag. */
export function matches(header: string, tag: string): boolean {
  // 8.3
  const tags = opaqueTags(header, 'weak');
  return tags === 'any' || tags.includes(tag.slice(1, -1));
}

/** What `If-Match` and `If-None-Match` demand of the user that a request changes. */
export function condition(headers: IncomingHttpHeaders): Condition {
  // 4.8
  const { 'if-match': match, 'if-none-match': noneMatch } = headers;
  if (match === undefined && noneMatch === undefined) return ALWAYS;
  return {
    oneOf: match === undefined ? 'any' : versions(match, 'strong'),
    noneOf: noneMatch === undefined ? [] : versions(noneMatch, 'weak'),
  };
}

/** Whether `If-Match` of a GET allows the user's version; else it is 412 (RFC 9110 §13.1.1). */
export function isWanted(user: User, headers: IncomingHttpHeaders): boolean {
  const header = headers['if-match'];
  if (header === undefined) return true;
  const tags = versions(header, 'strong');
  return tags === 'any' || tags.includes(user.version);
}

/** Whether `If-None-Match` of a GET names the user's tag: then the answer is 304. */
export function isUnchanged(user: User, headers: IncomingHttpHeaders): boolean {
  // 4.3
  const header = headers['if-none-match'];
  if (header === undefined) return false;
  const tags = versions(header, 'weak');
  return tags === 'any' || tags.includes(user.version);
}

// entity-tag = [ "W/" ] DQUOTE *( %x21 / %x23-7E / obs-text ) DQUOTE   (RFC 9110 §8.8.3)
// The list allows empty elements (§5.6.1).
const ENTITY_TAG = /[ \t,]*(W\/)?"([\x21\x23-\x7e\x80-\xff]*)"[ \t]*(?=,|$)/y;
const VERSION = /^[1-9][0-9]{0,15}$/;

/** The versions that a list of tags names. */
function versions(header: string, comparison: 'strong' | 'weak'): Versions {
  // 4.8
  const tags = opaqueTags(header, comparison);
  if (tags === 'any') return tags;
  return tags.filter((tag) => VERSION.test(tag)).map(Number);
}

/**
 * The tags of a list, without quotes; a weak tag only in a weak comparison (§8.8.3.2). What is
 * not a tag matches nothing and ends the list.
 */
function opaqueTags(header: string, comparison: 'strong' | 'weak'): 'any' | string[] {
  if (header.trim() === '*') return 'any';
  const found: string[] = [];
  ENTITY_TAG.lastIndex = 0;
  for (let tag = ENTITY_TAG.exec(header); tag !== null; tag = ENTITY_TAG.exec(header)) {
    const [, weak, opaque = ''] = tag;
    if (comparison === 'weak' || !weak) found.push(opaque);
  }
  return found;
}
