// Section 1 of the contract: DATABASE_URL.
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { chmodSync, chownSync, copyFileSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { certificate, NO_OPENSSL } from '../support/certificate.ts';
import { send } from '../support/client.ts';
import { OWNER } from '../support/daemon.ts';
import { createDatabase } from '../support/postgres.ts';
import { Server } from '../support/postgres-server.ts';
import { fileOf, newFolder, start } from '../support/program.ts';
import { execute, ready, refusal } from '../support/service.ts';

describe('1 configuration: a Postgres with TLS', { skip: NO_OPENSSL, concurrency: 4 }, () => {
  let server: Server;
  let cert: string;
  before(async () => {
    const files = certificate();
    const key = files.TLS_KEY_FILE;
    cert = files.TLS_CERT_FILE;
    chmodSync(dirname(cert), 0o755);
    chownSync(key, OWNER.uid, OWNER.gid); // The server's user must own its key.
    const options = ['ssl=on', `ssl_cert_file=${cert}`, `ssl_key_file=${key}`, 'fsync=off'];
    server = await Server.create(...options.flatMap((option) => ['-c', option]));
  });
  after(() => server?.stop());

  // Another spelling of 127.0.0.1, which the certificate does not name.
  const OTHER_NAME = '127.1';
  for (const [mode, host, authority, why, status] of [
    ['disable', '127.0.0.1', '', 'plain', 200],
    ['allow', '127.0.0.1', '', 'encrypted where it can be', 200],
    ['prefer', '127.0.0.1', '', 'encrypted where it can be', 200],
    ['require', '127.0.0.1', '', 'encrypted, not verified', 200],
    ['verify-full', 'localhost', 'node', 'the authority is known', 200],
    ['verify-full', 'localhost', '', 'the authority is not known', 500],
    ['verify-full', '127.0.0.1', 'sslrootcert', 'the authority is known', 200],
    ['verify-full', OTHER_NAME, 'sslrootcert', 'the name is not the certificate’s', 500],
    ['verify-full', 'localhost', 'system', 'the authority is known', 200],
    ['verify-full', 'localhost', 'another system', 'the authority is not known', 500],
    ['verify-ca', OTHER_NAME, 'sslrootcert', 'the name does not matter', 200],
    ['verify-ca', 'localhost', '', 'the authority is not known', 500],
    ['require', OTHER_NAME, 'sslrootcert', 'verified as with verify-ca', 200],
    ['require', 'localhost', 'another sslrootcert', 'verified as with verify-ca', 500],
  ] as const) {
    test(`1 DATABASE_URL: sslmode=${mode} to ${host} (${why}${authority && `, by ${authority}`}) returns ${status}`, async () => {
      const url = new URL(await createDatabase(server.url));
      url.hostname = host;
      // Doesn't escape slashes, because people type paths without escapes.
      const path = authority === 'another sslrootcert' ? certificate().TLS_CERT_FILE : cert;
      const roots = { sslrootcert: `&sslrootcert=${path}`, system: '&sslrootcert=system' };
      const root = roots[authority.replace('another ', '') as keyof typeof roots] ?? '';
      await using program = await start({
        DATABASE_URL: `${url}?sslmode=${mode}&connect_timeout=60${root}`, // for a slow machine
        DATABASE_TIMEOUT_MS: status === 200 ? '60000' : '2000',
        ...(authority === 'node' && { NODE_EXTRA_CA_CERTS: cert }),
        ...(authority === 'system' && { SSL_CERT_FILE: cert }),
      });
      if (status === 200) await ready(program);
      assert.equal((await send(`${program.url}/users`)).status, status);
      const text = `select from pg_stat_ssl natural join pg_stat_activity
        where ssl and datname = '${url.pathname.slice(1)}'`;
      const rows = await execute(server.url, text);
      assert.equal(rows.length > 0, status === 200 && mode !== 'disable');
    });
  }

  test('1 DATABASE_URL: an sslrootcert that is missing or not PEM exits with 78', async () => {
    const der = new X509Certificate(readFileSync(cert)).raw;
    for (const path of [join(newFolder(), 'missing'), fileOf(''), fileOf(der)]) {
      const DATABASE_URL = `postgres:///?sslmode=verify-full&sslrootcert=${path}`;
      const said = /^DATABASE_URL: .*; expected sslrootcert to be .* a PEM file$/;
      assert.match(await refusal(DATABASE_URL, {}, 78), said);
    }
  });

  test('1 DATABASE_URL: another sslrootcert in the same file needs no restart', async () => {
    const url = await createDatabase(server.url);
    const path = fileOf(readFileSync(certificate().TLS_CERT_FILE));
    const parameters = `sslmode=verify-full&connect_timeout=60&sslrootcert=${path}`;
    await using program = await start({ DATABASE_URL: `${url}?${parameters}` });
    const { cause } = await program.logged('store unavailable');
    assert.equal(cause, 'self-signed certificate; its authority must be in sslrootcert');
    copyFileSync(cert, path);
    await ready(program);
  });
});
