// The address of a client, and the keys of its failure counters.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  clientAddress,
  forwardedPrefix,
  networksOf,
  plainAddress,
} from '../../src/http/address.ts';
import { Exchange } from '../../src/http/exchange.ts';

const SOCKET = '203.0.113.9';

describe('2.18 the prefix that a proxy removed', () => {
  for (const prefix of ['/api/v1', '/a.b/..c/...', "/~x_-!$&'()*+,;=:@", '/%20/%C3%A4%2F', '/.a']) {
    test(prefix, () => {
      assert.equal(forwardedPrefix({ 'x-forwarded-prefix': prefix }, 1), prefix);
      assert.equal(forwardedPrefix({ 'x-forwarded-prefix': `${prefix}/` }, 2), prefix);
      assert.equal(forwardedPrefix({ 'x-forwarded-prefix': prefix }, 0), '');
    });
  }

  for (const prefix of [
    ...[undefined, '', '//', '//evil.example', '/a//b', 'a/b', 'https://x/a', '/a/..', '/%2e%2E/a'],
    ...['/a/%2e/', '/a b', '/a, /b', '/a?b', '/a>', '/a"', '/ä', '/a\t', '/%2', '/%zz'],
  ]) {
    test(`ignored: ${JSON.stringify(prefix)}`, () =>
      assert.equal(forwardedPrefix({ 'x-forwarded-prefix': prefix }, 1), ''));
  }
});

/** With how many proxies the header gives this address; otherwise the socket's. */
const FORWARDED = [
  [0, '192.0.2.1', SOCKET], // without a proxy, the header is a claim
  [1, '1.1.1.1, 192.0.2.1', '192.0.2.1'], // entries further left are claims
  [2, '1.1.1.1, 192.0.2.1, 10.0.0.1', '192.0.2.1'],
  [2, '192.0.2.10', SOCKET], // an entry too few
  [1, undefined, SOCKET],
  [1, '192.0.2.1,', SOCKET],
  [1, ' 1.1.1.1 ,\t192.0.2.1 ', '192.0.2.1'],
  [1, '192.0.2.1:4711', '192.0.2.1'],
  [1, '192.0.2.1:47x', SOCKET],
  [1, 'x192.0.2.1:47', SOCKET],
  [1, '2001:db8:1:2:3:4:5:6', '2001:db8:1:2:3:4:5:6'],
  [1, '[2001:db8::1]', '2001:db8::1'],
  [1, '[2001:db8::1]:4711', '2001:db8::1'],
  [1, '[2001:db8::1]:47x', SOCKET],
  [1, 'x[2001:db8::1]', SOCKET],
  [1, 'fe80::1%"x', SOCKET], // the quote would end a string in the log
  [1, '::ffff:192.0.2.1', '192.0.2.1'],
] as const;

/** Addresses as a socket has them, and without IPv4 in IPv6. */
const PLAIN = [
  ['192.0.2.1', '192.0.2.1'],
  ['::FFFF:192.0.2.1', '192.0.2.1'],
  ['::ffff:0001:0002', '0.1.0.2'],
  ['0000:0000:0000:0000:0000:ffff:c000:0201', '192.0.2.1'],
  ['::ffff:0:192.0.2.1', '::ffff:0:192.0.2.1'],
  ['::ffff:192.0.2.1%eth0', '::ffff:192.0.2.1%eth0'],
  ['::ffff:192.0.2.256', '::ffff:192.0.2.256'],
  ['2001:db8::ffff:1', '2001:db8::ffff:1'],
] as const;

describe('the client’s address', () => {
  for (const [proxies, header, address] of FORWARDED) {
    test(`behind ${proxies} with "${header}": ${address}`, () =>
      assert.equal(clientAddress(SOCKET, header, proxies), address));
  }
  for (const [socket, address] of PLAIN) {
    test(`"${socket}" is ${address}`, () => assert.equal(plainAddress(socket), address));
  }
});

describe('the keys of counters', () => {
  for (const [address, network, site] of [
    ['192.0.2.1', '192.0.2.1', undefined],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2', '2001:db8:1::/48'],
    ['2001::2:3:4:5:6', '2001:0:0:2', '2001:0:0::/48'],
    ['::1', '0:0:0:0', '0:0:0::/48'],
    ['2001:0db8:0001:0002::1', '2001:db8:1:2', '2001:db8:1::/48'],
    ['2001::2:3:4:5:192.0.2.1', '2001:0:2:3', '2001:0:2::/48'],
    ['fe80::2:3:4:5:6%1.5', 'fe80:0:0:2', 'fe80:0:0::/48'],
  ] as const) {
    test(`3.13 6.17 of "${address}" are ${network} and ${site}`, () =>
      assert.deepEqual(networksOf(address), { network, site }));
  }
});

test('5.11 clients of one IPv6 /64 take turns together', () => {
  const networkOf = (client: string) =>
    Object.assign(Object.create(Exchange.prototype) as Exchange, { client }).network;
  assert.equal(networkOf('2001:db8:1:2::3'), networkOf('2001:db8:1:2:ffff::4'));
  assert.notEqual(networkOf('2001:db8:1:2::3'), networkOf('2001:db8:1:3::3'));
  assert.equal(networkOf('192.0.2.1'), '192.0.2.1');
});
