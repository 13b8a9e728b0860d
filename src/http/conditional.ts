// Entity tags and their lists (RFC 9110 §8.8.3, §13.1).

// entity-tag = [ "W/" ] DQUOTE *( %x21 / %x23-7E / obs-text ) DQUOTE   (RFC 9110 §8.8.3)
// A list can have empty elements (§5.6.1).
const ENTITY_TAG = /[ \t,]*(W\/)?"([\x21\x23-\x7e\x80-\xff]*)"[ \t]*(?=,|$)/gy;

// A head can have 3,900, and a call that runs on the store keeps 9 bytes for each, also if its client has left (6.17).
const MAX_TAGS = 100;

/** Returns the first tags, those before a malformed one; weak tags in a weak comparison only (§8.8.3.2). */
export function parseTags(header: string, comparison: 'strong' | 'weak'): 'any' | string[] {
  if (header.trim() === '*') return 'any';
  const tags: string[] = [];
  for (const [, weak, tag = ''] of header.matchAll(ENTITY_TAG).take(MAX_TAGS)) {
    if (comparison === 'weak' || !weak) tags.push(tag);
  }
  return tags;
}
