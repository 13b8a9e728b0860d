// TLS records that cause no event: updates of keys, made from the client's traffic secret (RFC 8446 §4.6.3, §7.2).
import assert from 'node:assert/strict';
import { createCipheriv, createHmac } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { Listener } from '../../src/server/listener.ts';
import { certificate, NO_OPENSSL } from '../support/certificate.ts';
import { until } from '../support/until.ts';

/** HKDF-Expand-Label of one block, with SHA-256 (RFC 8446 §7.1). */
function expand(secret: Buffer, label: string, length: number): Buffer {
  const name = Buffer.from(`tls13 ${label}`);
  const info = Buffer.concat([Buffer.of(0, length, name.length), name, Buffer.of(0)]);
  return createHmac('sha256', secret)
    .update(info)
    .update(Buffer.of(1))
    .digest()
    .subarray(0, length);
}

/** Returns records with `update_requested`, each of which changes the key of the next. */
function keyUpdates(secret: Buffer, count: number): Buffer {
  const records: Buffer[] = [];
  const header = Buffer.from('170303' + '0016', 'hex'); // 5 bytes, their type, and a tag of 16
  let current = secret;
  for (let i = 0; i < count; i++) {
    const [key, iv] = [expand(current, 'key', 16), expand(current, 'iv', 12)];
    const cipher = createCipheriv('aes-128-gcm', key, iv).setAAD(header); // The sequence number is 0.
    const sealed = cipher.update(Buffer.from('1800000101' + '16', 'hex'));
    cipher.final();
    records.push(header, sealed, cipher.getAuthTag());
    current = expand(current, 'traffic upd', 32);
  }
  return Buffer.concat(records);
}

test('6.3 a flood of TLS records without data closes its connection', {
  skip: NO_OPENSSL,
}, async (t) => {
  const { TLS_CERT_FILE, TLS_KEY_FILE } = certificate();
  const listener = new Listener(
    { handle: () => {}, refusal: () => '', allow: '' },
    {
      limits: { budgetBytes: 2 ** 30, maxConnections: 10, connectionBytes: 1 },
      idleTimeoutMs: 65_000,
      unreadTimeoutMs: 65_000,
      tls: { cert: readFileSync(TLS_CERT_FILE, 'utf8'), key: readFileSync(TLS_KEY_FILE, 'utf8') },
    },
  );
  t.after(() => listener.destroy());
  const transport = connect(await listener.listen(0, '127.0.0.1'), '127.0.0.1');
  transport.on('error', () => {});
  const client = connectTls({
    ...{ socket: transport, rejectUnauthorized: false },
    ...{ minVersion: 'TLSv1.3', ciphers: 'TLS_AES_128_GCM_SHA256' },
  }).on('error', () => {});
  const secret = Promise.withResolvers<Buffer>();
  client.on('keylog', (line: Buffer) => {
    const [label, , hex] = String(line).trim().split(' ');
    if (label === 'CLIENT_TRAFFIC_SECRET_0') secret.resolve(Buffer.from(hex!, 'hex'));
  });
  await once(client, 'secureConnect');
  const records = keyUpdates(await secret.promise, 20_000);
  await until(() => listener.usage().states.idle === 1); // It has the client's Finished.
  transport.write(records);
  await once(transport, 'close');
  assert.equal(listener.usage().closed.records, 1);
});
