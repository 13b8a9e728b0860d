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

/**
 * Returns records with `update_requested`, each of which changes the key of the next. Of each 50, one follows a
 * record with a byte of the text.
 */
function keyUpdates(secret: Buffer, count: number, text = ''): Buffer {
  const records: Buffer[] = [];
  let current = secret;
  for (let i = 0; i < count; i++) {
    const [key, iv] = [expand(current, 'key', 16), expand(current, 'iv', 12)];
    const seal = (content: string, type: string) => {
      const plain = Buffer.from(content + type, 'hex');
      const header = Buffer.of(0x17, 3, 3, 0, plain.length + 16); // with a tag of 16
      const cipher = createCipheriv('aes-128-gcm', key, iv).setAAD(header);
      const sealed = cipher.update(plain);
      cipher.final();
      records.push(header, sealed, cipher.getAuthTag());
      iv[11]! ^= 1; // The sequence number is 0 for the first record of a key, and 1 for the second.
    };
    const byte = i % 50 === 0 ? text.charCodeAt(i / 50) : Number.NaN;
    if (byte > 0) seal(byte.toString(16), '17');
    seal('1800000101', '16');
    current = expand(current, 'traffic upd', 32);
  }
  return Buffer.concat(records);
}

for (const text of ['', `GET /${'a'.repeat(1_000)}`]) {
  test(`6.3, 7.3 a flood of TLS records closes its connection, with ${text.length} bytes of data`, {
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
    const records = keyUpdates(await secret.promise, 20_000, text);
    await until(() => listener.usage().states.idle === 1); // It has the client's Finished.
    transport.write(records);
    await once(transport, 'close');
    assert.equal(listener.usage().closed.records, 1);
  });
}
