// Rules 4.1, 4.2 and 4.14 of the contract: the list of users, complete, in pages and by email. The
// tests insert large lists directly into the database, because requests would take too long.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { DatabaseSync } from 'node:sqlite';
import { after, before, describe, test } from 'node:test';
import postgres from 'postgres';
import { type HttpResponse, send } from '../support/client.ts';
import { newDatabase, type Program, STORES, start } from '../support/program.ts';

const TEXT = 'text/plain; charset=utf-8';
const ROWS = 200_000;
const MEMORY_LIMIT_BYTES = 64 * 2 ** 20;
const ON_LINUX = { skip: process.platform !== 'linux' && 'needs /proc, which Linux has' };

let readers = 0;

for (const store of STORES) {
  describe(`4.1 and 4.2 lists (${store})`, () => {
    let program: Program;
    let users: User[];
    before(async () => {
      program = await start({ DATABASE_URL: await newDatabase(store) });
    });
    after(() => program?.[Symbol.asyncDispose]());

    test('4.1 GET /users without users returns an empty array', async () => {
      const response = await list(program, '');
      assert.deepEqual(summary(response), { status: 200, type: 'application/json', link: null });
      assert.equal(response.body, '[]');
    });

    test('4.2 GET /users with a limit without users returns no Link', async () => {
      const response = await list(program, '?limit=1');
      assert.deepEqual(summary(response), { status: 200, type: 'application/json', link: null });
      assert.equal(response.body, '[]');
    });

    describe('with seven users, one of them deleted in between', () => {
      before(async () => {
        users = [];
        const emails = ['d@x', 'a+b@x', 'c@x', 'gone@x', 'jörg@x', 'A+B@x', '%41@x'];
        for (const email of emails) {
          const body = { name: `User "${email}"`, email };
          const response = await send(`${program.url}/users`, { method: 'POST', body });
          users.push(JSON.parse(response.body));
        }
        const [gone] = users.splice(3, 1);
        await send(`${program.url}/users/${gone?.id}`, { method: 'DELETE' });
        await send(`${program.url}/users/${users[0]?.id}`, {
          method: 'PATCH',
          body: { name: 'Z' },
        });
        users[0] = { ...users[0]!, name: 'Z' };
      });

      test('4.1 GET /users returns all users by ascending id, keys in order', async () => {
        const response = await list(program, '');
        assert.deepEqual(summary(response), { status: 200, type: 'application/json', link: null });
        assert.equal(response.body, JSON.stringify(users));
      });

      test('4.1 HEAD /users returns the headers of GET and no body', async () => {
        const response = await send(`${program.url}/users`, { method: 'HEAD' });
        assert.deepEqual(summary(response), { status: 200, type: 'application/json', link: null });
        assert.equal(response.body, '');
      });

      for (const limit of [1, 2, 3, 5]) {
        test(`4.2 limit=${limit} returns the first users and links to the next`, async () => {
          const response = await list(program, `?limit=${limit}`);
          assert.equal(response.body, JSON.stringify(users.slice(0, limit)));
          const last = users[limit - 1]?.id;
          assert.deepEqual(summary(response), {
            status: 200,
            type: 'application/json',
            link: `</users?limit=${limit}&after=${last}>; rel="next"`,
          });
        });

        test(`4.2 the links of limit=${limit} lead through every user once`, async () => {
          const seen: User[] = [];
          let path: string | undefined = `/users?limit=${limit}`;
          let pages = 0;
          while (path !== undefined) {
            const response: HttpResponse = await send(program.url + path);
            seen.push(...JSON.parse(response.body));
            pages++;
            path = /^<([^>]+)>; rel="next"$/.exec(response.headers.get('link') ?? '')?.[1];
          }
          assert.deepEqual(seen, users);
          assert.equal(pages, Math.ceil(users.length / limit));
        });
      }

      for (const limit of [6, 7, 1000]) {
        test(`4.2 limit=${limit} returns all users and no Link`, async () => {
          const response = await list(program, `?limit=${limit}`);
          assert.deepEqual(summary(response), {
            status: 200,
            type: 'application/json',
            link: null,
          });
          assert.equal(response.body, JSON.stringify(users));
        });
      }

      for (const { why, query, from } of [
        { why: 'after=0 returns all', query: () => 'after=0', from: 0 },
        { why: 'after the first', query: (ids: number[]) => `after=${ids[0]}`, from: 1 },
        { why: 'after a deleted one', query: (ids: number[]) => `after=${ids[3]! - 1}`, from: 3 },
        { why: 'after the last', query: (ids: number[]) => `after=${ids[5]}`, from: 6 },
        { why: 'after more than the last', query: () => 'after=999999', from: 6 },
        { why: 'after 2^31', query: () => 'after=2147483648', from: 6 },
        { why: 'after 2^53 - 1', query: () => 'after=9007199254740991', from: 6 },
      ]) {
        test(`4.2 ${why} returns the users with a greater id`, async () => {
          const response = await list(program, `?${query(users.map(({ id }) => id))}`);
          assert.deepEqual(summary(response), {
            status: 200,
            type: 'application/json',
            link: null,
          });
          assert.equal(response.body, JSON.stringify(users.slice(from)));
        });
      }

      test('4.2 limit and after together, in either order', async () => {
        const after = users[1]?.id;
        const last = users[3]?.id;
        for (const query of [`?limit=2&after=${after}`, `?after=${after}&limit=2`]) {
          const response = await list(program, query);
          assert.equal(response.body, JSON.stringify(users.slice(2, 4)));
          assert.equal(response.headers.get('link'), `</users?limit=2&after=${last}>; rel="next"`);
        }
      });

      test('4.2 limit and after with exactly the rest return no Link', async () => {
        const response = await list(program, `?limit=2&after=${users[3]?.id}`);
        assert.equal(response.body, JSON.stringify(users.slice(4)));
        assert.equal(response.headers.get('link'), null);
      });

      for (const { why, query, email } of [
        { why: 'a plain one', query: 'email=d@x', email: 'd@x' },
        { why: 'an escaped @', query: 'email=d%40x', email: 'd@x' },
        { why: 'a + as itself', query: 'email=a+b@x', email: 'a+b@x' },
        { why: 'an escaped +', query: 'email=a%2Bb@x', email: 'a+b@x' },
        { why: 'the exact case', query: 'email=A+B@x', email: 'A+B@x' },
        { why: 'letters beyond ASCII', query: 'email=j%C3%B6rg@x', email: 'jörg@x' },
        { why: 'an escaped %', query: 'email=%2541@x', email: '%41@x' },
        { why: 'an escaped name of the parameter', query: '%65mail=c@x', email: 'c@x' },
        { why: 'an unknown parameter', query: 'x=1&email=c@x&x=2', email: 'c@x' },
      ]) {
        test(`4.2 email of ${why} returns an array of that user`, async () => {
          const response = await list(program, `?${query}`);
          assert.deepEqual(summary(response), {
            status: 200,
            type: 'application/json',
            link: null,
          });
          assert.equal(response.body, JSON.stringify(users.filter((user) => user.email === email)));
          assert.equal(JSON.parse(response.body).length, 1);
        });
      }

      for (const query of [
        'email=nobody@x',
        'email=D@x',
        'email=gone@x',
        'email=%25@x',
        'email=_@x',
        'email=a%20b@x',
      ]) {
        test(`4.2 ${query} returns no user`, async () => {
          const response = await list(program, `?${query}`);
          // An invalid email can return 400 instead.
          assert.ok(response.body === '[]' || response.status === 400, response.body);
          assert.ok([200, 400].includes(response.status));
        });
      }

      for (const { why, query } of [
        { why: 'limit 0', query: 'limit=0' },
        { why: 'limit 1001', query: 'limit=1001' },
        { why: 'a negative limit', query: 'limit=-1' },
        { why: 'a limit with a fraction', query: 'limit=1.5' },
        { why: 'a limit with an exponent', query: 'limit=1e2' },
        { why: 'a limit in hex', query: 'limit=0x10' },
        { why: 'a limit with +', query: 'limit=+1' },
        { why: 'a limit with a space', query: 'limit=%201' },
        { why: 'an empty limit', query: 'limit=' },
        { why: 'a limit without =', query: 'limit' },
        { why: 'a limit of letters', query: 'limit=all' },
        { why: 'a limit of 40 digits', query: `limit=${'1'.repeat(40)}` },
        { why: 'a limit in other digits', query: 'limit=%EF%BC%91' },
        { why: 'limit twice', query: 'limit=1&limit=1' },
        { why: 'limit twice, once escaped', query: 'limit=1&%6cimit=1' },
        { why: 'a negative after', query: 'after=-1' },
        { why: 'an after with a fraction', query: 'after=1.5' },
        { why: 'an empty after', query: 'after=' },
        { why: 'an after of letters', query: 'after=x' },
        { why: 'an after with SQL', query: 'after=0%20or%201=1' },
        { why: 'after twice', query: 'after=0&after=1' },
        { why: 'email twice', query: 'email=d@x&email=c@x' },
        { why: 'a good limit and a bad after', query: 'limit=1&after=x' },
        { why: 'a bad escape', query: 'limit=%zz' },
        { why: 'an escape that is not UTF-8', query: 'email=%ff@x' },
      ]) {
        test(`4.2 ${why} returns 400`, async () => {
          const response = await list(program, `?${query}`);
          assert.deepEqual(summary(response), { status: 400, type: TEXT, link: null });
          assert.match(response.body, /^\P{Cc}+$/u);
        });
      }

      for (const query of [
        '',
        'x=1',
        'x=1&x=2',
        'Limit=0',
        'offset=3',
        'order=name',
        '=',
        '&&',
        'limits=0',
        'constructor=1',
        '__proto__=1',
        '?limit=0',
      ]) {
        test(`4.2 the query "${query}" is ignored`, async () => {
          const response = await list(program, `?${query}`);
          assert.deepEqual(summary(response), {
            status: 200,
            type: 'application/json',
            link: null,
          });
          assert.equal(response.body, JSON.stringify(users));
        });
      }
    });
  });

  describe(`4.1 and 4.14 a list of ${ROWS} users (${store})`, { timeout: 300_000 }, () => {
    let program: Program;
    let database: string;
    let slim: number;
    before(async () => {
      database = await newDatabase(store);
      program = await start({
        DATABASE_URL: database,
        DATABASE_POOL_SIZE: '1',
        DATABASE_TIMEOUT_MS: '2000',
      });
      // On Postgres a program listens before its schema exists.
      while ((await list(program, '?limit=1')).status !== 200) await program.logged('request');
      await insertRows(database);
      slim = (await list(program, '?limit=1000')).body.length;
    });
    after(() => program?.[Symbol.asyncDispose]());

    test('4.1 memory stays within 64 MB of idle, and the list is complete', ON_LINUX, async () => {
      const idle = await memory(program, 'VmRSS');
      let response = await readList(program);
      // Takes the lowest of several peaks, because V8's background compiler also takes memory.
      let peak = Number.POSITIVE_INFINITY;
      for (let i = 0; i < 4 && peak - idle >= MEMORY_LIMIT_BYTES; i++) {
        await writeFile(`/proc/${program.process.pid}/clear_refs`, '5');
        response = await readList(program);
        peak = Math.min(peak, await memory(program, 'VmHWM'));
      }
      assert.deepEqual(
        { status: response.status, coding: response.coding, length: response.length },
        { status: 200, coding: 'chunked', length: null },
      );
      assert.deepEqual(response.summary, {
        count: ROWS,
        isAscending: true,
        first: row(1),
        last: row(ROWS),
      });
      assert.ok(response.bytes > (ROWS / 1000) * slim, `${response.bytes} bytes`);
      assert.ok(peak - idle < MEMORY_LIMIT_BYTES, `from ${idle} to ${peak} bytes`);
    });

    test('4.1 HEAD of it returns the same headers and no body', async () => {
      const response = await send(`${program.url}/users`, { method: 'HEAD' });
      assert.deepEqual(summary(response), { status: 200, type: 'application/json', link: null });
      assert.equal(response.headers.get('transfer-encoding'), 'chunked');
      assert.equal(response.body, '');
    });

    test('4.1 a slow reader holds no store connection', async () => {
      const reader = await slowReader(program);
      const users = `${program.url}/users`;
      const email = 'beside@the.list';
      const created = await send(users, { method: 'POST', body: { name: 'B', email } });
      const { id } = JSON.parse(created.body);
      const responses = [created, await send(`${users}/1`), await send(`${users}/${ROWS}`)];
      responses.push(await send(`${users}?limit=3`), await send(`${users}?email=${email}`));
      responses.push(await send(`${users}/${id}`, { method: 'PATCH', body: { name: 'C' } }));
      responses.push(await send(`${users}/${id}`, { method: 'DELETE' }), await send(program.url));
      assert.deepEqual(statuses(responses), [201, ...Array(7).fill(200)]);
      assert.deepEqual(finished(program, reader.requestId), [], 'the list is still being sent');
      const text = await reader.rest();
      assert.match(text.slice(0, 15), /^HTTP\/1\.1 200 /);
      assert.match(text.slice(-250), new RegExp(`{"id":${ROWS},`));
      assert.match(text, /\]\r\n0\r\n\r\n$/);
      await program.until(() => finished(program, reader.requestId).length > 0);
      assert.deepEqual(finished(program, reader.requestId), [200]);
    });

    test('4.1 a list ends when its client disconnects, and a pipelined one never starts', async () => {
      const socket = await open(program);
      for (const id of ['gone-1', 'gone-2'])
        socket.write(`GET /users HTTP/1.1\r\nHost: x\r\nX-Request-Id: ${id}\r\n\r\n`);
      await once(socket, 'readable');
      socket.resetAndDestroy();
      await program.until(() => finished(program, 'gone-1').length > 0);
      await send(`${program.url}/users/1`);
      assert.equal(finished(program, 'gone-2').length, 0);
    });

    test('4.1 the list over HTTP/1.0 is complete and not chunked', async () => {
      const socket = await open(program);
      socket.write(`GET /users?after=${ROWS - 5000} HTTP/1.0\r\n\r\n`);
      const chunks = await socket.toArray();
      const text = Buffer.concat(chunks).toString();
      const [head = '', body = ''] = text.split('\r\n\r\n');
      assert.doesNotMatch(head, /^transfer-encoding:/im);
      assert.equal(JSON.parse(body).length, 5000);
    });

    test('4.1 another request is processed between the pages of a list', async () => {
      const [reader, beside] = [await open(program), await open(program)];
      let bytes = 0;
      let bytesAtGreeting: number | undefined;
      beside.on('data', () => {
        bytesAtGreeting ??= bytes;
      });
      reader.once('data', () => beside.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n'));
      reader.on('data', (chunk) => {
        bytes += chunk.length;
      });
      reader.write('GET /users HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
      await once(reader, 'close');
      beside.destroy();
      assert.ok(bytes > (ROWS / 1000) * slim, `${bytes} bytes`);
      assert.ok(
        (bytesAtGreeting ?? bytes) < bytes / 2,
        `after ${bytesAtGreeting} of ${bytes} bytes`,
      );
    });

    // This test is last, because it drops the table.
    test('2.9, 4.14 a store failure in the middle of a list resets the connection and is logged', async () => {
      const reader = await slowReader(program);
      await rename(database, 'users', 'users_away');
      const failure = await reader.rest().then(
        (text) => `a whole response of ${text.length} characters`,
        (err: NodeJS.ErrnoException) => err.code,
      );
      assert.equal(failure, 'ECONNRESET');
      const { requestId } = await program.logged('request failed');
      const line = program.log.find(
        (one) => one.message === 'request' && one.requestId === requestId,
      );
      assert.deepEqual([line?.route, line?.status], ['/users', 200]);
      assert.equal((await send(`${program.url}/users`)).status, 500);
      await rename(database, 'users_away', 'users');
      assert.equal((await list(program, '?limit=1')).status, 200);
    });
  });
}

interface User {
  readonly id: number;
  readonly name: string;
  readonly email: string;
}

function list(program: Program, query: string): Promise<HttpResponse> {
  return send(`${program.url}/users${query}`);
}

function summary(response: HttpResponse) {
  return {
    status: response.status,
    type: response.headers.get('content-type'),
    link: response.headers.get('link'),
  };
}

function statuses(responses: readonly HttpResponse[]): number[] {
  return responses.map((response) => response.status);
}

// Names of 100 characters make the list larger than all buffers between the two processes.
function row(id: number): User {
  return { id, name: String(id).padStart(100, 'x'), email: `user-${id}@many.example` };
}

async function insertRows(url: string): Promise<void> {
  if (url.startsWith('sqlite:')) {
    using database = openSqlite(url);
    database.exec(
      `with recursive n (i) as (select 1 union all select i + 1 from n where i < ${ROWS})
       insert into users (name, email)
       select substr(replace(hex(zeroblob(50)), '0', 'x') || i, -100), 'user-' || i || '@many.example'
       from n`,
    );
    return;
  }
  await withPostgres(
    url,
    `insert into users (name, email)
     select lpad(i::text, 100, 'x'), 'user-' || i || '@many.example'
     from generate_series(1, ${ROWS}) i order by i`,
  );
}

async function rename(url: string, from: string, to: string): Promise<void> {
  const sql = `alter table ${from} rename to ${to}`;
  if (!url.startsWith('sqlite:')) return withPostgres(url, sql);
  using database = openSqlite(url);
  database.exec(sql);
}

function openSqlite(url: string): DatabaseSync {
  return new DatabaseSync(url.slice('sqlite:'.length), { timeout: 5000 });
}

async function withPostgres(url: string, statement: string): Promise<void> {
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  try {
    await sql.unsafe(statement);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

async function memory(program: Program, field: string): Promise<number> {
  const status = await readFile(`/proc/${program.process.pid}/status`, 'utf8');
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1]) * 1024;
}

// Reads the whole list and keeps only the parts that the test needs.
async function readList(program: Program) {
  const res = await fetch(`${program.url}/users`);
  let bytes = 0;
  let text = '';
  const decoder = new TextDecoder();
  for await (const chunk of res.body ?? []) {
    bytes += chunk.length;
    text += decoder.decode(chunk, { stream: true });
  }
  const users: User[] = JSON.parse(text);
  return {
    status: res.status,
    coding: res.headers.get('transfer-encoding'),
    length: res.headers.get('content-length'),
    bytes,
    summary: {
      count: users.length,
      isAscending: users.every((user, i) => i === 0 || user.id > users[i - 1]!.id),
      first: users[0],
      last: users.at(-1),
    },
  };
}

// Requests the whole list and reads its start. Reads no more until `rest` is called.
async function slowReader(program: Program) {
  const requestId = `slow-${++readers}`;
  const socket = await open(program);
  const head = [
    'GET /users HTTP/1.1',
    'Host: x',
    `X-Request-Id: ${requestId}`,
    'Connection: close',
  ];
  socket.write(`${head.join('\r\n')}\r\n\r\n`);
  await once(socket, 'readable');
  return { requestId, rest: () => readAll(socket) };
}

async function open(program: Program): Promise<Socket> {
  const { hostname, port } = new URL(program.url);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  return socket;
}

async function readAll(socket: Socket): Promise<string> {
  return Buffer.concat(await socket.toArray()).toString();
}

// Returns the statuses of the log's lines for that request.
function finished(program: Program, requestId: string): unknown[] {
  return program.log
    .filter((line) => line.message === 'request' && line.requestId === requestId)
    .map((line) => line.status);
}
