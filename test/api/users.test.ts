// GET /users splits long lists into reads and pieces; here it uses a fake store. The tests of its rules are in
// test/contract/users-list.test.ts.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { condition } from '../../src/api/preconditions.ts';
import * as users from '../../src/api/users.ts';
import type { Context, Services } from '../../src/route.ts';
import type { Caller, Page, User, UserStore } from '../../src/user.ts';
import { REPRESENTATION, toPublic } from '../../src/user.ts';
import { usedBytes } from '../support/garbage.ts';
import { newUser, storedUser } from '../support/users.ts';

type List = (page: Page, caller?: Caller) => Promise<readonly User[]>;

/** Returns the pieces of the list; one piece if it is short. */
async function piecesOf(list: List, query = '', network = ''): Promise<(string | Buffer)[]> {
  const store = { list } as UserStore;
  const { body } = await users.list({ query, network } as Context, { store } as Services);
  if (typeof body === 'string' || Buffer.isBuffer(body)) return [body];
  const pieces: (string | Buffer)[] = [];
  for (;;) {
    const piece = body.next();
    if (piece === undefined) return pieces;
    pieces.push(await piece);
  }
}

/** Users with odd ids, and names of these lengths, one after another. */
function usersOf(count: number, lengths: readonly number[] = [100]): User[] {
  return Array.from({ length: count }, (_, i) => {
    const name = '中'.repeat(lengths[Math.floor((i * lengths.length) / count)]!);
    return storedUser({ id: 2 * i + 1, name, email: `${i}@example.com` });
  });
}

const pageOf = (all: readonly User[], { after, limit }: Page) =>
  all.filter(({ id }) => id > after).slice(0, limit);
const publicOf = (all: readonly User[]) => JSON.parse(JSON.stringify(all.map(toPublic)));

describe('4.1 a list is complete and read once', () => {
  for (const lengths of [[1], [100], [1, 100], [100, 1]]) {
    for (const [query, count] of [
      ['', 3000],
      ['limit=1000', 1000],
      ['limit=499', 499],
    ] as const) {
      test(`4.1 "${query}" with names of ${lengths} characters`, async () => {
        const all = usersOf(3000, lengths);
        let read = 0;
        const list: List = async (page) => {
          assert.ok(page.limit <= (read === 0 ? 1001 : 500));
          const users = pageOf(all, page);
          read += users.length;
          return users;
        };
        const pieces = await piecesOf(list, query);
        assert.deepEqual(JSON.parse(pieces.join('')), publicOf(all.slice(0, count)));
        assert.ok(read < 2 * count + 500, `${read} were read`);
        // 4.1: no piece is large, and few are small.
        const most = Math.max(...pieces.map((piece) => Buffer.byteLength(piece)));
        const mean = Buffer.byteLength(pieces.join('')) / pieces.length;
        assert.ok(most < 96 * 1024, `${most} bytes`);
        assert.ok(mean > 20_000, `${mean} bytes`);
      });
    }
  }
});

test('6.17 a search by email keeps nothing else of the query', async () => {
  const emails: string[] = [];
  const findByEmail = async (email: string) => void emails.push(email);
  const store = { findByEmail: findByEmail as UserStore['findByEmail'] } as UserStore;
  const before = usedBytes();
  for (let i = 0; i < 200; i++) {
    const query = Buffer.from(`email=${i}@example.com&x=${'x'.repeat(15_000)}`).toString();
    await users.list({ query } as Context, { store } as Services);
  }
  const grown = (usedBytes() - before) / emails.length;
  assert.ok(grown < 8_000, `${grown} bytes`);
  assert.equal(emails[7], '7@example.com');
});

const USERS = usersOf(2000, [1, 100, 100, 100]);

/** A store whose reads of a page share one array, as batched reads do. */
function sharing(): List {
  const read = new Map<string, readonly User[]>();
  return async (page) => {
    const key = JSON.stringify(page);
    if (!read.has(key)) read.set(key, pageOf(USERS, page));
    return read.get(key)!;
  };
}

test('4.2 clients that share reads get the same bytes without copies, each its whole list', async () => {
  const list = sharing();
  const clients = ['', '', '', 'limit=800', 'limit=900', 'after=999'].map((q) => piecesOf(list, q));
  const ranges = [[0], [0], [0], [0, 800], [0, 900], [500]]; // The others' second page begins there.
  const [, second = [], third = []] = await Promise.all(clients);
  for (const [i, client] of clients.entries()) {
    assert.deepEqual(JSON.parse((await client).join('')), publicOf(USERS.slice(...ranges[i]!)));
  }
  assert.ok(third.length > 5);
  const isShared = (bytes: unknown, i: number) => Buffer.isBuffer(bytes) && bytes === second[i];
  assert.ok(third.slice(0, -1).every(isShared));
});

test('4.17 5.11 each call names its client, and so does each read of a list', async () => {
  const named: unknown[] = [];
  const call = async (...args: unknown[]) => void named.push((args.at(-1) as Caller).network);
  const list: List = (page, caller) => call(caller).then(() => pageOf(USERS, page));
  await piecesOf(list, '', 'x');
  const reads = named.length;
  const store = { create: call, find: call, findByEmail: call, update: call, delete: call };
  const request = { query: 'email=a@b', parameters: { id: '1' }, headers: {}, body: newUser() };
  const args: unknown = [{ ...request, network: 'x' }, { store }];
  const { create, read, replace, patch, remove } = users;
  const all = [users.list, create, read, replace, patch, remove];
  await Promise.allSettled(all.map((handle) => handle(...(args as Parameters<typeof handle>))));
  assert.deepEqual(named, Array(reads + all.length).fill('x'));
});

test('4.8 a request without conditions has the one that needs no second statement', () =>
  assert.equal(condition({ 'if-match': '*' }), condition({})));

test('4.8 6.17 the first 100 tags of a list count', () => {
  const versions = Array.from({ length: 101 }, (_, i) => i + 1);
  const tags = versions.map((version) => `"${REPRESENTATION}-${version}"`).join();
  const first = versions.slice(0, 100);
  const found = condition({ 'if-match': tags, 'if-none-match': tags });
  assert.deepEqual(found, { oneOf: first, noneOf: first });
});

// See the comment in pieceOf().
test('no text of a list is a rope', async () => {
  setFlagsFromString('--allow-natives-syntax');
  const isFlat = runInNewContext('(text) => %StringIsFlat(text)') as (text: string) => boolean;
  assert.equal(isFlat(`${USERS[0]!.name}${USERS[0]!.email}`), false);
  for (const query of ['', 'limit=10', 'limit=400', 'limit=1000']) {
    for (const piece of await piecesOf(sharing(), query)) {
      const isShort = piece.length < 16 * 1024; // A longer text is a Buffer, which responses share.
      assert.ok(Buffer.isBuffer(piece) || (isShort && isFlat(piece)), query);
    }
  }
});
