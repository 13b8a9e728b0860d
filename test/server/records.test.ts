// TLS records that cause no event: updates of keys (RFC 8446 §4.6.3).
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { Listener } from '../../src/server/listener.ts';
import { certificate, NO_OPENSSL } from '../support/certificate.ts';
import { RECORD_CIPHER, Records, trafficSecret } from '../support/records.ts';
import { until } from '../support/until.ts';

const FLOODS = {
  'without data': (records: Records) => records.keyUpdates(20_000),
  'with an empty line after every 1,000': (records: Records) => {
    const part = () => [records.keyUpdates(1_000), records.seal(Buffer.from('\r\n'))];
    return Buffer.concat(Array.from({ length: 20 }, part).flat());
  },
};

for (const [what, flood] of Object.entries(FLOODS)) {
  test(`6.3, 7.3 a flood of TLS records ${what} closes its connection`, {
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
      ...{ minVersion: 'TLSv1.3', ciphers: RECORD_CIPHER },
    }).on('error', () => {});
    const secret = Promise.withResolvers<Buffer>();
    client.on('keylog', (line: Buffer) => {
      const found = trafficSecret(line);
      if (found !== undefined) secret.resolve(found);
    });
    await once(client, 'secureConnect');
    const records = flood(new Records(await secret.promise));
    await until(() => listener.usage().states.idle === 1); // It has the client's Finished.
    transport.write(records);
    await once(transport, 'close');
    assert.equal(listener.usage().closed.records, 1);
  });
}
