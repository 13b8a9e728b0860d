// Section 1 of the contract: DATABASE_URL, DATABASE_POOL_SIZE and DATABASE_TIMEOUT_MS.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import postgres from 'postgres';
import { certificate, NO_OPENSSL } from '../support/certificate.ts';
import { send } from '../support/client.ts';
import { OWNER } from '../support/daemon.ts';
import { createDatabase, freePort, startPostgres } from '../support/postgres.ts';
import { newFolder, PASSWORD, type Program, SECRET, start } from '../support/program.ts';
import { until } from '../support/until.ts';

const ENTRY = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

describe('1 configuration: the store', { concurrency: 4, timeout: 300_000 }, () => {
  for (const [value, limitMs] of [
    ['1000', 1000],
    ['', 5000],
  ] as const) {
    test(`1 DATABASE_TIMEOUT_MS: "${value}" lets a request wait ${limitMs} ms for the store, then 500`, async () => {
      const url = await createDatabase();
      await using program = await start({ DATABASE_URL: url, DATABASE_TIMEOUT_MS: value });
      await ready(program);
      const user = await create(program);
      await using sql = database(url);
      const lock = await sql.lockUsers();
      const began = performance.now();
      const response = await send(`${program.url}/users/${user.id}`);
      const ms = performance.now() - began;
      await lock.release();
      assert.deepEqual([response.status, response.body], [500, 'Internal Server Error']);
      assert.ok(ms > limitMs * 0.9 && ms < limitMs + 1000, `responded after ${ms} ms`);
      const next = await send(`${program.url}/users/${user.id}`);
      assert.deepEqual([next.status, JSON.parse(next.body)], [200, user]);
    });
  }

  describe('a Postgres with TLS', { skip: NO_OPENSSL }, () => {
    let server: Awaited<ReturnType<typeof startPostgres>>;
    let cert: string;
    before(async () => {
      const folder = newFolder();
      chmodSync(folder, 0o755);
      const key = join(folder, 'server.key');
      cert = join(folder, 'server.crt');
      const subject =
        '-nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1,DNS:localhost';
      const files = `-newkey ec -pkeyopt ec_paramgen_curve:P-256 -keyout ${key} -out ${cert}`;
      execFileSync('openssl', ['req', '-x509', ...`${subject} ${files}`.split(' ')], {
        stdio: 'ignore',
      });
      // The server's user must own its key.
      const { uid, gid } = OWNER;
      if (uid !== undefined && gid !== undefined) chownSync(key, uid, gid);
      const options = ['ssl=on', `ssl_cert_file=${cert}`, `ssl_key_file=${key}`, 'fsync=off'];
      server = await startPostgres({ flags: options.flatMap((option) => ['-c', option]) });
    });
    after(() => server?.stop());

    // Another spelling of 127.0.0.1, which the certificate does not name.
    const OTHER_NAME = '127.1';
    const modes = [
      ['disable', '127.0.0.1', '', 'plain', 200],
      ['prefer', '127.0.0.1', '', 'encrypted where it can be', 200],
      ['require', '127.0.0.1', '', 'encrypted, not verified', 200],
      ['require', 'localhost', '', 'encrypted, not verified', 200],
      ['verify-full', '127.0.0.1', 'node', 'the authority is known', 200],
      ['verify-full', 'localhost', 'node', 'the authority is known', 200],
      ['verify-full', 'localhost', '', 'the authority is not known', 500],
      ['verify-full', OTHER_NAME, 'node', 'the name is not the certificate’s', 500],
      ['verify-full', 'localhost', 'sslrootcert', 'the authority is known', 200],
      ['verify-full', OTHER_NAME, 'sslrootcert', 'the name is not the certificate’s', 500],
      ['verify-full', 'localhost', 'system', 'the authority is known', 200],
      ['verify-full', '127.0.0.1', 'system', 'the authority is known', 200],
      ['verify-full', OTHER_NAME, 'system', 'the name is not the certificate’s', 500],
      ['verify-full', 'localhost', 'another system', 'the authority is not known', 500],
      ['verify-ca', OTHER_NAME, 'node', 'the name does not matter', 200],
      ['verify-ca', OTHER_NAME, 'sslrootcert', 'the name does not matter', 200],
      ['verify-ca', 'localhost', '', 'the authority is not known', 500],
      ['require', OTHER_NAME, 'sslrootcert', 'verified as with verify-ca', 200],
      ['require', 'localhost', 'another sslrootcert', 'verified as with verify-ca', 500],
    ] as const;
    for (const [mode, host, authority, why, status] of modes) {
      test(`1 DATABASE_URL: sslmode=${mode} to ${host} (${why}${authority && `, by ${authority}`}) returns ${status}`, async () => {
        const url = new URL(await createDatabase(server.url));
        url.hostname = host;
        // Doesn't escape slashes, because people type paths without escapes.
        const path = authority === 'another sslrootcert' ? certificate().TLS_CERT_FILE : cert;
        const roots = { sslrootcert: `&sslrootcert=${path}`, system: '&sslrootcert=system' };
        const root = roots[authority.replace('another ', '') as keyof typeof roots] ?? '';
        await using program = await start({
          DATABASE_URL: `${url}?sslmode=${mode}${root}`,
          DATABASE_TIMEOUT_MS: '2000',
          ...(authority === 'node' && { NODE_EXTRA_CA_CERTS: cert }),
          ...(authority === 'system' && { SSL_CERT_FILE: cert }),
        });
        if (status === 200) await ready(program);
        assert.equal((await send(`${program.url}/users`)).status, status);
        const sql = postgres(server.url, { max: 1 });
        const rows = await sql`select ssl from pg_stat_ssl natural join pg_stat_activity
          where datname = ${url.pathname.slice(1)}`;
        await sql.end({ timeout: 5 });
        const encrypted = status === 200 && mode !== 'disable';
        assert.equal(
          rows.some(({ ssl }) => ssl),
          encrypted,
        );
      });
    }
  });

  test('1 DATABASE_URL: the default is data/service.db in the working directory', async () => {
    const folder = newFolder();
    const env = { PORT: '0', HOST: '127.0.0.1', AUTH_PASSWORD: PASSWORD, SIGNING_SECRET: SECRET };
    const child = spawn(process.execPath, [ENTRY], {
      cwd: folder,
      env,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const exited = once(child, 'close');
    const [line] = await Promise.race([once(child.stdout, 'data'), exited]);
    child.kill();
    assert.deepEqual(await exited, [0, null]);
    assert.equal(JSON.parse(String(line).split('\n')[0]!).message, 'listening');
    assert.ok(existsSync(join(folder, 'data/service.db')));
  });

  test('1 DATABASE_URL: sqlite:PATH keeps the users for the next start', async () => {
    const env = { DATABASE_URL: `sqlite:${join(newFolder(), 'service.db')}` };
    const bodies = [];
    for (const method of ['POST', 'GET']) {
      await using program = await start(env);
      const body = method === 'POST' ? { name: 'Ann', email: 'ann@example.com' } : undefined;
      bodies.push((await send(`${program.url}/users`, { method, body })).body);
      await program.stop();
    }
    assert.equal(`[${bodies[0]}]`, bodies[1]);
  });

  test('1 DATABASE_URL: sqlite::memory: starts empty', async () => {
    const found = [];
    for (const email of ['ann@example.com', 'ben@example.com']) {
      await using program = await start({ DATABASE_URL: 'sqlite::memory:' });
      found.push((await send(`${program.url}/users`)).body);
      await send(`${program.url}/users`, { method: 'POST', body: { name: 'A', email } });
    }
    assert.deepEqual(found, ['[]', '[]']);
  });

  const working = [
    ['', 'no option'],
    ['?sslmode=disable&target_session_attrs=any', 'no TLS, any server'],
    ['?sslmode=allow&target_session_attrs=read-write', 'TLS if it insists, a server for writes'],
    ['?sslmode=prefer&target_session_attrs=primary', 'TLS if it can, a primary'],
    ['?target_session_attrs=prefer-standby', 'a standby if there is one'],
  ] as const;
  for (const [options, why] of working) {
    test(`1 DATABASE_URL: postgresql://…${options} reaches a primary without TLS (${why})`, async () => {
      const url = (await createDatabase()).replace(/^postgres:/, 'postgresql:');
      await using program = await start({ DATABASE_URL: url + options });
      const response = await send(`${program.url}/users`);
      assert.deepEqual([response.status, response.body], [200, '[]']);
    });
  }

  test('1 DATABASE_URL: libpq environment variables such as PGPASSWORD are ignored', async () => {
    const url = new URL(await createDatabase());
    const env = {
      PGPASSWORD: url.password,
      PGTARGETSESSIONATTRS: 'any',
      PGHOST: 'nowhere.invalid',
    };
    await using program = await start({ ...env, DATABASE_URL: url.href });
    assert.equal((await send(`${program.url}/users`)).status, 200);
    url.password = '';
    await using refused = await start({ ...env, DATABASE_URL: url.href });
    assert.match(String((await refused.logged('store unavailable')).cause), /password/);
  });

  const failing = [
    ['?sslmode=require', 'the server has no TLS'],
    ['?sslmode=verify-full', 'the server has no TLS'],
    ['?target_session_attrs=standby', 'the server is a primary'],
    ['?target_session_attrs=read-only', 'the server takes writes'],
  ] as const;
  for (const [options, why] of failing) {
    test(`1 DATABASE_URL: postgres://…${options} is refused (${why})`, async () => {
      const DATABASE_URL = (await createDatabase()) + options;
      await using program = await start({ DATABASE_URL, DATABASE_TIMEOUT_MS: '500' });
      await program.logged('store unavailable');
      const response = await send(`${program.url}/users`);
      assert.deepEqual([response.status, response.body], [500, 'Internal Server Error']);
    });
  }

  test('1 DATABASE_URL: of several hosts, the one that responds is used', async () => {
    const url = new URL(await createDatabase());
    const hosts = `127.0.0.1:${await freePort()},127.0.0.1:${url.port}`;
    await using program = await start({
      DATABASE_URL: url.href.replace(url.host, hosts).concat('?target_session_attrs=read-write'),
    });
    const response = await send(`${program.url}/users`);
    assert.deepEqual([response.status, response.body], [200, '[]']);
  });

  test('1 DATABASE_POOL_SIZE: limits the connections, however many requests wait', async () => {
    const url = await createDatabase();
    await using program = await start({ DATABASE_URL: url, DATABASE_POOL_SIZE: '2' });
    const user = await create(program);
    await using sql = database(url);
    const lock = await sql.lockUsers();
    const waiting = Array.from({ length: 20 }, (_, i) => [
      send(`${program.url}/users/${user.id}`),
      send(`${program.url}/users?limit=${i + 1}`),
      create(program),
    ]).flat();
    const counts = [await sql.connections(), await sql.connections(), await sql.connections()];
    await lock.release();
    await Promise.all(waiting);
    for (const count of counts) assert.ok(count >= 1 && count <= 2, `${count} connections`);
  });

  test('1 DATABASE_POOL_SIZE: the default is 4', async () => {
    const url = await createDatabase();
    await using program = await start({ DATABASE_URL: url });
    const user = await create(program);
    await using sql = database(url);
    const lock = await sql.lockUsers();
    const waiting: Promise<unknown>[] = [];
    // Each round sends another kind of request, so no two rounds share a statement.
    for (let i = 0; i < 10; i++) {
      waiting.push(send(`${program.url}/users/${user.id}`), create(program));
      waiting.push(send(`${program.url}/users?limit=${i + 1}`), send(`${program.url}/users`));
      assert.equal((await send(program.url)).status, 200);
    }
    let count = 0;
    await until(async () => {
      count = await sql.connections();
      return count >= 4;
    });
    await lock.release();
    await Promise.all(waiting);
    assert.equal(count, 4);
  });
});

/** Resolves once the store responds. */
async function ready(program: Program): Promise<void> {
  await until(async () => (await send(`${program.adminUrl}/ready`)).status === 200);
}

let users = 0;

/** Creates a user with a new email and returns the API's response. */
async function create(program: Program): Promise<{ id: number; name: string; email: string }> {
  const body = { name: 'Ann', email: `ann-${++users}@example.com` };
  const response = await send(`${program.url}/users`, { method: 'POST', body });
  assert.equal(response.status, 201, response.body);
  return JSON.parse(response.body);
}

/** Connects to that database as superuser. */
function database(url: string) {
  const sql = postgres(url, { max: 2, onnotice: () => {} });
  return {
    /** Locks `users`, so every other statement on it waits. */
    async lockUsers() {
      const held = await sql.reserve();
      await held.unsafe('begin; lock table users in access exclusive mode');
      return {
        async release() {
          await held.unsafe('rollback');
          held.release();
        },
      };
    },
    /** Counts other connections to the database, once at least one of them waits for the lock. */
    async connections(): Promise<number> {
      let count = 0;
      await until(async () => {
        const rows = await sql`select wait_event_type = 'Lock' as waits from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid() and query not like 'begin; lock%'`;
        count = rows.length;
        return rows.some(({ waits }) => waits);
      });
      return count;
    },
    [Symbol.asyncDispose]: () => sql.end({ timeout: 5 }),
  };
}
