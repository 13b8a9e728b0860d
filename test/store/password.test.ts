// Passwords against a real server with each method.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, type TestContext, test } from 'node:test';
import { openOne } from '../support/open-store.ts';
import { Server } from '../support/server.ts';

// How the server stores a role's password, and what it asks a client for.
const METHODS = [
  { stored: 'scram-sha-256', asked: 'scram-sha-256' },
  { stored: 'scram-sha-256', asked: 'password' },
  { stored: 'md5', asked: 'md5' },
  { stored: 'md5', asked: 'password' },
];

const PASSWORDS = [
  { why: 'a letter beyond the basic plane', set: '😀' },
  { why: 'ASCII', set: ' pass "word\\ ' },
  { why: 'letters beyond ASCII', set: 'pässwörd密码' },
] as const;

describe('1 DATABASE_URL: a password is used as it is', { timeout: 300_000 }, () => {
  let server: Server;
  before(async () => {
    server = await Server.create();
    for (const [i, { stored, asked }] of METHODS.entries()) {
      await server.query(`create database db${i}`);
      const roles = PASSWORDS.map(
        ({ set }, n) => `create role r${i}_${n} login password E'${set.replace(/['\\]/g, '\\$&')}'`,
      );
      await server.query(`set password_encryption = '${stored}'; ${roles.join('; ')}`);
      const path = join(server.dataDir, 'pg_hba.conf');
      writeFileSync(path, `host db${i} all 127.0.0.1/32 ${asked}\n${readFileSync(path, 'utf8')}`);
    }
    await server.stop();
    await server.start();
  });
  after(() => server?.stop());

  async function connect(t: TestContext, i: number, n: number, password: string): Promise<void> {
    const { port } = server;
    await openOne(
      t,
      `postgres://r${i}_${n}:${encodeURIComponent(password)}@127.0.0.1:${port}/db${i}`,
    );
  }

  for (const [i, { stored, asked }] of METHODS.entries()) {
    for (const [n, { why, set }] of PASSWORDS.entries()) {
      test(`${why}: stored as ${stored}, asked with ${asked}`, async (t) => {
        await connect(t, i, n, set);
        await assert.rejects(connect(t, i, n, `${set}x`), { code: '28P01' });
      });
    }
  }
});
