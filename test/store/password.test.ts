// A password against a real server with each method.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { openOne } from '../support/open-store.ts';
import { Server } from '../support/server.ts';

const PASSWORD = ' pass "w\'rd\\ pässwörd密码😀';

for (const [stored, asked] of [
  ['scram-sha-256', 'scram-sha-256'],
  ['scram-sha-256', 'password'],
  ['md5', 'md5'],
]) {
  test(`1 DATABASE_URL: a password stored as ${stored} and asked with ${asked} is used as it is`, async (t) => {
    await using server = await Server.create();
    const literal = `E'${PASSWORD.replace(/['\\]/g, '\\$&')}'`;
    await server.query(
      `set password_encryption = '${stored}'; create role r login password ${literal}`,
    );
    const path = join(server.dataDir, 'pg_hba.conf');
    writeFileSync(path, `host all r 127.0.0.1/32 ${asked}\n${readFileSync(path, 'utf8')}`);
    await server.query('select pg_reload_conf()');
    // No closure may capture the server: node 24.0 would never dispose it (nodejs/node#58744).
    const { port } = server;
    const url = (password: string) =>
      `postgres://r:${encodeURIComponent(password)}@127.0.0.1:${port}/postgres`;
    await openOne(t, url(PASSWORD));
    await assert.rejects(openOne(t, url(`${PASSWORD}x`)), { code: '28P01' });
  });
}
