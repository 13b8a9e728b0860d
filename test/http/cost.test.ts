// A header or target of 16 KiB is read in little time. Patterns that backtrack would take seconds.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { condition } from '../../src/api/preconditions.ts';
import { Credential } from '../../src/auth/credential.ts';
import { clientAddress, forwardedPrefix } from '../../src/http/address.ts';
import { HttpError } from '../../src/http/errors.ts';
import { Router } from '../../src/http/router.ts';
import { compress } from '../../src/http/static.ts';

const document = await compress(Buffer.from('x'), 'text/plain');
const router = new Router({ 'GET /users/{id}': 1 });
const credential = new Credential({ user: 'ann', password: 'correct horse', name: 'Ann' });
const basic = (text: string) => credential.matchesBasic(Buffer.from(text).toString('base64'));
const prefix = (text: string) => forwardedPrefix({ 'x-forwarded-prefix': text }, 1);
const coding = (text: string) => document({ 'accept-encoding': text });
const ACCENTS = '\u0301'.repeat(16_384); // In NFC, one below a letter precedes those above it.

for (const [what, read, start, parts] of [
  ['an X-Forwarded-For', (text) => clientAddress('::1', text, 1), '', ',|1|[|:|1.1.1.1,| '],
  ['an X-Forwarded-Prefix', prefix, '/', 'a/|%20|.|%2e/|?'],
  ['a target', (text) => router.find(text), '/', '/|%20|a'],
  ['a target in absolute form', (text) => router.find(text), 'http://', 'h|/|:'],
  ['an If-Match', (text) => condition({ 'if-match': text }), '', ',| |"|"1",|W/|"1" |, "x" '],
  ['an Accept-Encoding', coding, 'a', ',| |a |;|q=0.|gzip;q=1,|a \t;'],
  ['a login', (text) => credential.matches(text, ''), ACCENTS, '\u0316'],
  ['a password', (text) => credential.matches('', text), ACCENTS, '\u0316'],
  ['a Basic credential', basic, ACCENTS, '\u0316'],
] as [string, (text: string) => unknown, string, string][]) {
  test(`${what} of 16 KiB takes less than 100 ms of CPU`, () => {
    const before = process.cpuUsage();
    for (const part of parts.split('|')) {
      try {
        read(`${start}${part.repeat(16_384 / part.length)}x`);
      } catch (err) {
        if (!(err instanceof HttpError)) throw err;
      }
    }
    const { user, system } = process.cpuUsage(before);
    assert.ok(user + system < 100_000, `${user + system} microseconds`);
  });
}
