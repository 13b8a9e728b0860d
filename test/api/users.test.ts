// GET /users splits long lists into reads and pieces; here it uses a fake store. The tests of its
// rules are in test/contract/users-list.test.ts.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { list as listUsers } from '../../src/api/users.ts';
import type { Pieces } from '../../src/http/reply.ts';
import type { Context, Services } from '../../src/route.ts';
import { type Caller, type Page, toPublic, type User, type UserStore } from '../../src/user.ts';
import { storedUser } from '../support/users.ts';

/** Returns the list of these users as text, and the number of users read from the store. */
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
        return storedUser({ id: 2 * i + 1, name, email: `${i}@example.com` });
      });
      const { text, read } = await list(all, query);
      const expected = JSON.parse(JSON.stringify(all.slice(0, count).map(toPublic)));
      assert.deepEqual(JSON.parse(text), expected);
      assert.ok(read < 2 * count + 500, `${read} were read`);
    });
  }
}

const USERS = Array.from({ length: 2000 }, (_, i) =>
  storedUser({ id: i + 1, name: 'ü'.repeat(100), email: `${i}@example.com` }),
);

/** Returns a store whose reads of a page share one array, as batched reads do. */
function sharing(): UserStore {
  const read = new Map<string, readonly User[]>();
  const list = async ({ after, limit }: Page) => {
    const key = `${after} ${limit}`;
    if (!read.has(key)) read.set(key, USERS.slice(after, after + limit));
    return read.get(key)!;
  };
  return { list } as unknown as UserStore;
}

test('clients that shared a read get the same bytes, each the whole list', async () => {
  const store = sharing();
  const clients = await Promise.all(
    Array.from({ length: 3 }, async () => {
      const { body } = await listUsers({ query: '' } as Context, { store } as Services);
      const texts: (string | Buffer)[] = [];
      for (;;) {
        const piece = (body as Pieces).next();
        if (piece === undefined) return texts;
        if (piece instanceof Promise) await piece;
        else texts.push(piece);
      }
    }),
  );
  const expected = JSON.parse(JSON.stringify(USERS.map(toPublic)));
  for (const texts of clients) {
    assert.deepEqual(JSON.parse(texts.map(String).join('')), expected);
    assert.ok(texts.length > 5, `${texts.length} pieces`);
  }
  const [, second, third] = clients;
  const copies = second!.filter((bytes, i) => !Buffer.isBuffer(bytes) || bytes !== third![i]);
  assert.equal(copies.length, 0);
});

test('5.11 each read of a list names its client', async () => {
  const clients = new Set<string | undefined>();
  const all = sharing();
  const list = (page: Page, caller?: Caller) => {
    clients.add(caller?.network);
    return all.list(page);
  };
  const context = { query: '', network: '192.0.2.1' } as Context;
  const store = { list } as UserStore;
  const { body } = await listUsers(context, { store } as Services);
  (body as Pieces).next();
  await (body as Pieces).next();
  assert.deepEqual([...clients], ['192.0.2.1']);
});

// See the comment in makePiece().
test('no text of a list is a rope', async () => {
  setFlagsFromString('--allow-natives-syntax');
  const isFlat = runInNewContext('(text) => %StringIsFlat(text)') as (text: string) => boolean;
  assert.equal(isFlat(`${USERS[0]!.name}${USERS[0]!.email}`), false);
  for (const query of ['', 'limit=100', 'limit=1000']) {
    const { body } = await listUsers({ query } as Context, { store: sharing() } as Services);
    const text = typeof body === 'string' || Buffer.isBuffer(body) ? body : body.next();
    assert.ok(Buffer.isBuffer(text) || isFlat(String(text)), query);
  }
});

for (const { why, pages } of [
  { why: 'the same page again', pages: (all: readonly User[]) => all.slice(0, 500) },
  {
    why: 'ids that JavaScript rounds',
    pages: () => Array.from({ length: 500 }, (_, i) => ({ ...USERS[i]!, id: 2 ** 53 })),
  },
]) {
  test(`5.10 a list whose store returns ${why} ends with an error`, async () => {
    let reads = 0;
    const list = async () => (++reads === 1 ? USERS.slice(0, 500) : pages(USERS));
    const store = { list } as unknown as UserStore;
    const { body } = await listUsers({ query: '' } as Context, { store } as Services);
    const readAll = async () => {
      for (;;) {
        const piece = (body as Pieces).next();
        if (piece === undefined) return;
        await piece;
      }
    };
    await assert.rejects(readAll(), { name: 'RangeError' });
    assert.equal(reads, 2);
  });
}
