// Creates key pairs for tests of TLS with openssl.
import { execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { newFolder } from './program.ts';

/** Reason to skip tests that need a certificate; false if they can run. */
export const NO_OPENSSL =
  spawnSync('openssl', ['version']).status !== 0 && 'openssl is not installed';

const KEYS = { ec: 'ec -pkeyopt ec_paramgen_curve:P-256', rsa: 'rsa:2048' };

/**
 * Returns the variables of a new key and its self-signed certificate for 127.0.0.1 and localhost. `validity` is its first and
 * last time as YYYYMMDDHHMMSSZ; default: from now on, two days.
 */
export function certificate(
  kind: keyof typeof KEYS = 'ec',
  validity?: readonly [from: string, to: string],
): { TLS_CERT_FILE: string; TLS_KEY_FILE: string } {
  const folder = newFolder();
  const [cert, key, request] = ['pair.crt', 'pair.key', 'pair.csr'].map((name) =>
    join(folder, name),
  );
  const openssl = (args: string) =>
    execFileSync('openssl', args.split(/\s+/), { cwd: folder, stdio: 'ignore' });
  const options = `-newkey ${KEYS[kind]} -nodes -subj /CN=localhost -keyout ${key}`;
  if (validity === undefined) {
    openssl(
      `req -x509 ${options} -days 2 -addext subjectAltName=IP:127.0.0.1,DNS:localhost -out ${cert}`,
    );
  } else {
    // Before OpenSSL 3.4, only its small authority takes both times.
    writeFileSync(join(folder, 'index'), '');
    writeFileSync(join(folder, 'config'), AUTHORITY);
    openssl(`req -new ${options} -out ${request}`);
    const [from, to] = validity;
    openssl(`ca -selfsign -batch -config config -keyfile ${key} -in ${request} -out ${cert}
      -startdate ${from} -enddate ${to}`);
  }
  return { TLS_CERT_FILE: cert!, TLS_KEY_FILE: key! };
}

const AUTHORITY = `
[ca]
default_ca = own
[own]
database = index
rand_serial = yes
new_certs_dir = .
default_md = sha256
policy = any
[any]
commonName = supplied
`;
