// Passwords that SASLprep changes, against a real server with each method (RFC 4013, RFC 5802 §5.1).
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
  { why: 'a superscript', set: 'Sommer²024', same: 'Sommer2024' },
  { why: 'a soft hyphen', set: 'I\u00adX', same: 'IX' },
  { why: 'a zero-width space', set: 'a\u200bb', same: 'a b' },
  { why: 'a zero-width joiner', set: 'a\u200db', same: 'ab' },
  { why: 'variation selectors and a grapheme joiner', set: 'a\ufe0f\u180b\u034f', same: 'a' },
  { why: 'a ligature', set: 'ﬁsch', same: 'fisch' },
  { why: 'a decomposed letter', set: 'pa\u0308ss', same: 'p\u00e4ss' },
  { why: 'a byte order mark', set: '\ufeffpass', same: 'pass' },
  // SASLprep refuses these, so they are used as they are.
  { why: 'a superscript and an emoji, which Unicode 3.2 lacks', set: 'x²😀' },
  { why: 'a superscript and a control character', set: 'x²\u0007' },
  { why: 'a superscript, left-to-right and right-to-left text', set: 'x²\u0627' },
  { why: 'only what SASLprep removes', set: '\u00ad\u00ad' },
  { why: 'a letter beyond the basic plane', set: '😀' },
  { why: 'ASCII', set: ' pass "word\\ ' },
  { why: 'letters beyond ASCII', set: 'pässwörd密码' },
] as const;

describe('a password is the same as for psql', { timeout: 300_000 }, () => {
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
    for (const [n, { why, set, ...rest }] of PASSWORDS.entries()) {
      test(`${why}: stored as ${stored}, asked with ${asked}`, async (t) => {
        await connect(t, i, n, set);
        if (stored !== 'md5' && 'same' in rest) await connect(t, i, n, rest.same);
        await assert.rejects(connect(t, i, n, `${set}x`), { code: '28P01' });
      });
    }
  }
});
