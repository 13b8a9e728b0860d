// How GET /users divides long lists, with a store of this file. test/contract/users-list.test.ts has
// the rules.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { listUsers } from '../../src/api/users.ts';
import type { Pieces } from '../../src/http/reply.ts';
import type { Context, Services } from '../../src/route.ts';
import type { Page, User, UserStore } from '../../src/user.ts';

/** A list of these users: its text, and the number of users read from the store for it. */
async function list(all: readonly User[], query: string): Promise<{ text: string; read: number }> {
  let read = 0;
  const store = {
    list: async ({ after, limit }: Page) => {
      const users = all.filter(({ id }) => id > after).slice(0, limit);
      read += users.length;
      return users;
    },
  } as unknown as UserStore;
  const { body } = await listUsers({ query } as Context, { store } as Services);
  const pieces = body as Pieces;
  let text = '';
  for (;;) {
    const piece = pieces.next();
    assert.equal(pieces.heldBytes, 0);
    if (piece === undefined) return { text, read };
    if (piece instanceof Promise) await piece;
    else text += piece;
  }
}

for (const { why, lengths } of [
  { why: 'short names', lengths: [1] },
  { why: 'long names', lengths: [100] },
  { why: 'names that become longer', lengths: [1, 100] },
  { why: 'names that become shorter', lengths: [100, 1] },
]) {
  for (const [query, count] of [
    ['', 3000],
    ['limit=1000', 1000],
  ] as const) {
    test(`4.1 a list of users with ${why} is complete, read once (${query || 'no limit'})`, async () => {
      const all = Array.from({ length: 3000 }, (_, i): User => {
        const name = 'ü'.repeat(lengths[Math.floor((i * lengths.length) / 3000)]!);
        return { id: 2 * i + 1, name, email: `${i}@example.com`, version: 1 };
      });
      const { text, read } = await list(all, query);
      const expected = all.slice(0, count).map(({ id, name, email }) => ({ id, name, email }));
      assert.deepEqual(JSON.parse(text), expected);
      assert.ok(read < 2 * count + 500, `${read} were read`);
    });
  }
}
