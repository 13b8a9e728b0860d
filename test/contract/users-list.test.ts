// Rules 4.1, 4.2 and 4.14 of the contract: lists of many users. Short ones are in users-model.test.ts.
// Large ones are inserted directly into the database, because requests would take too long.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { DatabaseSync } from 'node:sqlite';
import { after, before, describe, test } from 'node:test';
import postgres from 'postgres';
import { type HttpResponse, send } from '../support/client.ts';
import { newDatabase, type Program, STORES, start } from '../support/program.ts';

const ROWS = 200_000;
const MEMORY_LIMIT_BYTES = 64 * 2 ** 20;
const ON_LINUX = { skip: process.platform !== 'linux' && 'needs /proc, which Linux has' };

let readers = 0;

for (const store of STORES) {
  describe(`4.1 lists around the size that is streamed (${store})`, () => {
    test('4.1, 4.2 a list of 500 users or more has no Content-Length', async () => {
      await using program = await start({ DATABASE_URL: await newDatabase(store) });
      const users = await Promise.all(
        Array.from({ length: 501 }, async (_, i) => {
          const body = { name: 'Ada', email: `${i}@x` };
          const response = await send(`${program.url}/users`, { method: 'POST', body });
          return JSON.parse(response.body) as User;
        }),
      );
      users.sort((one, other) => one.id - other.id);
      for (const { query, from = 0, count, link } of [
        { query: '?limit=499', count: 499, link: users[498] },
        { query: '?limit=500', count: 500, link: users[499] },
        { query: '?limit=501', count: 501 },
        { query: '', count: 501 },
        { query: `?after=${users[0]!.id}`, from: 1, count: 500 },
        { query: `?after=${users[1]!.id}&limit=1000`, from: 2, count: 499 },
      ]) {
        const response = await list(program, query);
        const last = link && `</users?limit=${count}&after=${link.id}>; rel="next"`;
        assert.deepEqual(JSON.parse(response.body), users.slice(from, from + count), query);
        assert.deepEqual(
          [response.headers.get('link'), response.headers.has('content-length')],
          [last ?? null, count < 500],
          query,
        );
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
