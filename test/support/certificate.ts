// Creates key pairs for tests of TLS with openssl.
import { execFileSync, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { newFolder } from './program.ts';

/** Reason to skip tests that need a certificate; false if they can run. */
export const NO_OPENSSL =
  spawnSync('openssl', ['version']).status !== 0 && 'openssl is not installed';

const KEYS = { ec: 'ec -pkeyopt ec_paramgen_curve:P-256', rsa: 'rsa:2048' };

/** Returns the variables of a new key and its self-signed certificate for 127.0.0.1. */
export function certificate(kind: keyof typeof KEYS = 'ec'): {
  TLS_CERT_FILE: string;
  TLS_KEY_FILE: string;
} {
  const path = join(newFolder(), 'pair');
  const [cert, key] = [`${path}.crt`, `${path}.key`];
  const options = `-x509 -newkey ${KEYS[kind]} -nodes -days 2 -subj /CN=localhost
    -addext subjectAltName=IP:127.0.0.1 -keyout ${key} -out ${cert}`;
  execFileSync('openssl', ['req', ...options.split(/\s+/)], { stdio: 'ignore' });
  return { TLS_CERT_FILE: cert, TLS_KEY_FILE: key };
}
