// Creates key pairs for tests of TLS with openssl.
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { newFolder } from './program.ts';

/** Reason to skip tests that need a certificate; false if they can run. */
export const NO_OPENSSL =
  spawnSync('openssl', ['version']).status !== 0 && 'openssl is not installed';

const KEYS = { ec: 'ec -pkeyopt ec_paramgen_curve:P-256', rsa: 'rsa:2048' };

/** Returns the variables of a new key and its self-signed certificate for 127.0.0.1 and localhost. */
export function certificate(kind: keyof typeof KEYS = 'ec', days = 2) {
  const folder = newFolder();
  const cert = join(folder, 'pair.crt');
  const key = join(folder, 'pair.key');
  const options = `req -x509 -newkey ${KEYS[kind]} -nodes -subj /CN=localhost -days ${days}`;
  const names = 'subjectAltName=IP:127.0.0.1,DNS:localhost';
  const args = [...options.split(' '), '-addext', names, '-keyout', key, '-out', cert];
  execFileSync('openssl', args, { stdio: 'ignore' });
  return { TLS_CERT_FILE: cert, TLS_KEY_FILE: key };
}

/** The same as PEM, for servers of node. */
export function keyPair() {
  const { TLS_CERT_FILE, TLS_KEY_FILE } = certificate();
  return { cert: readFileSync(TLS_CERT_FILE, 'utf8'), key: readFileSync(TLS_KEY_FILE, 'utf8') };
}
