// A password against a real server with each method.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { openOne } from '../support/open-store.ts';
import { Server } from '../support/server.ts';

const PASSWORD = ' pass "w\'rd\\ pässwörd密码😀';

test('1 DATABASE_URL: a password is used as it is, however it is stored and asked', async (t) => {
  await using server = await Server.create();
  const literal = `E'${PASSWORD.replace(/['\\]/g, '\\$&')}'`;
  // No closure may capture the server: node 24.0 would never dispose it (nodejs/node#58744).
  const { port, dataDir } = server;
  const path = join(dataDir, 'pg_hba.conf');
  for (const [role, stored, asked] of [
    ['a', 'scram-sha-256', 'scram-sha-256'],
    ['b', 'scram-sha-256', 'password'],
    ['c', 'md5', 'md5'],
  ]) {
    await server.query(
      `set password_encryption = '${stored}'; create role ${role} login password ${literal}`,
    );
    writeFileSync(path, `host all ${role} 127.0.0.1/32 ${asked}\n${readFileSync(path, 'utf8')}`);
    await server.query('select pg_reload_conf()');
    const url = (password: string) =>
      `postgres://${role}:${encodeURIComponent(password)}@127.0.0.1:${port}/postgres`;
    await openOne(t, url(PASSWORD));
    await assert.rejects(openOne(t, url(`${PASSWORD}x`)), { code: '28P01' }, asked);
  }
});
