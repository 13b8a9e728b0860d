// The address of a client, and the keys of its failure counters.
import assert from 'node:assert/strict';
import { isIP } from 'node:net';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import {
  clientAddress,
  counterKeys,
  forwardedPrefix,
  plainAddress,
} from '../../src/http/address.ts';
import { Exchange } from '../../src/http/exchange.ts';

const SOCKET = '203.0.113.9';

describe('2.18 the prefix that a proxy removed', () => {
  for (const prefix of [
    ...['/a', '/api/v1', '/a.b/..c/...', '/~x_-', "/!$&'()*+,;=:@", '/%20/%C3%A4%2F', '/.a'],
    `/${'a/'.repeat(4000)}b`,
  ]) {
    test(prefix.slice(0, 40), () => {
      assert.equal(forwardedPrefix({ 'x-forwarded-prefix': prefix }, 1), prefix);
      assert.equal(forwardedPrefix({ 'x-forwarded-prefix': `${prefix}/` }, 2), prefix);
      assert.equal(forwardedPrefix({ 'x-forwarded-prefix': prefix }, 0), '');
    });
  }

  for (const prefix of [
    ...[undefined, '', '/', '//', '//evil.example', '/a//b', '/a//', 'a', 'a/b', 'https://x/a'],
    ...['/.', '/..', '/a/..', '/a/../b', '/a/.', '/%2e%2E/a', '/.%2e', '/a/%2e/'],
    ...['/a b', '/a, /b', '/a?b', '/a#b', '/a>', '/a<b', '/a"', '/a\\b', '/a|b', '/ä', '/a\t'],
    ...['/%', '/%2', '/%zz', '/a%'],
    `/${'a/'.repeat(4000)}?`,
  ]) {
    test(`ignored: ${JSON.stringify(prefix)?.slice(0, 40)}`, () =>
      assert.equal(forwardedPrefix({ 'x-forwarded-prefix': prefix }, 1), ''));
  }
});

describe('the client’s address', () => {
  for (const [why, socket, header, proxies, address] of [
    ['no proxy: the socket’s', SOCKET, undefined, 0, SOCKET],
    ['no proxy: the header is a claim', SOCKET, '192.0.2.1', 0, SOCKET],
    ['one proxy: the last entry', SOCKET, '192.0.2.1', 1, '192.0.2.1'],
    ['one proxy: entries further left are claims', SOCKET, '1.1.1.1, 192.0.2.1', 1, '192.0.2.1'],
    [
      'two proxies: the second from the right',
      SOCKET,
      '1.1.1.1, 192.0.2.1, 10.0.0.1',
      2,
      '192.0.2.1',
    ],
    ['as many entries as proxies', SOCKET, '192.0.2.1,10.0.0.1', 2, '192.0.2.1'],
    ['one entry too few: the socket’s', SOCKET, '192.0.2.1', 2, SOCKET],
    ['no header: the socket’s', SOCKET, undefined, 1, SOCKET],
    ['an empty header: the socket’s', SOCKET, '', 1, SOCKET],
    ['an empty last entry: the socket’s', SOCKET, '192.0.2.1,', 1, SOCKET],
    ['a name: the socket’s', SOCKET, 'unknown', 1, SOCKET],
    ['no address: the socket’s', SOCKET, '192.0.2.256', 1, SOCKET],
    ['spaces and tabs around', SOCKET, ' 1.1.1.1 ,\t192.0.2.1 ', 1, '192.0.2.1'],
    ['a port is dropped', SOCKET, '192.0.2.1:4711', 1, '192.0.2.1'],
    ['IPv6', SOCKET, '2001:db8::1', 1, '2001:db8::1'],
    ['IPv6 in brackets', SOCKET, '[2001:db8::1]', 1, '2001:db8::1'],
    ['IPv6 with a port', SOCKET, '[2001:db8::1]:4711', 1, '2001:db8::1'],
    ['IPv6 with a bracket too few', SOCKET, '[2001:db8::1', 1, SOCKET],
    ['IPv4 in brackets', SOCKET, '[192.0.2.1]', 1, '192.0.2.1'],
    ['a quote in a zone, which would end a string in the log', SOCKET, 'fe80::1%"x', 1, SOCKET],
    ['IPv4-mapped', SOCKET, '::ffff:192.0.2.1', 1, '192.0.2.1'],
    ['IPv4-mapped with a port', SOCKET, '[::ffff:192.0.2.1]:80', 1, '192.0.2.1'],
    ['IPv4-mapped of the socket', '::ffff:192.0.2.1', undefined, 0, '192.0.2.1'],
    ['IPv4-mapped in capitals', '::FFFF:192.0.2.1', undefined, 0, '192.0.2.1'],
    ['IPv4-mapped in hexadecimal', '::ffff:c000:201', undefined, 0, '192.0.2.1'],
    ['IPv4-mapped in hexadecimal with zeros', '::ffff:0001:0002', undefined, 0, '0.1.0.2'],
    ['IPv4-mapped, written out', '0:0:0:0:0:ffff:192.0.2.1', undefined, 0, '192.0.2.1'],
    [
      'IPv4-mapped, written out in hexadecimal',
      '0000:0000:0000:0000:0000:ffff:c000:0201',
      undefined,
      0,
      '192.0.2.1',
    ],
    ['IPv4-mapped, its zeros shortened elsewhere', '0::ffff:192.0.2.1', undefined, 0, '192.0.2.1'],
    ['IPv4-compatible, which is not IPv4-mapped', '::192.0.2.1', undefined, 0, '::192.0.2.1'],
    ['another prefix', '::fffe:192.0.2.1', undefined, 0, '::fffe:192.0.2.1'],
    ['a prefix of ffff in another place', '::ffff:0:192.0.2.1', undefined, 0, '::ffff:0:192.0.2.1'],
    ['a closed socket', '', undefined, 0, ''],
    ['a closed socket, behind a proxy', '', '192.0.2.1', 1, '192.0.2.1'],
  ] as const) {
    test(`${why}: ${header ?? socket}`, () =>
      assert.equal(clientAddress(plainAddress(socket), header, proxies), address));
  }

  test('the entry is that of a split list', () => {
    const entry = fc.constantFrom('', ' ', '192.0.2.1', '2001:db8::1', 'unknown');
    const entries = fc.array(entry, { maxLength: 6 });
    const isEqual = (list: readonly string[], proxies: number) => {
      const address = list.at(-proxies)?.trim() ?? '';
      const expected = isIP(address) ? address : SOCKET;
      assert.equal(clientAddress(SOCKET, list.join(','), proxies), expected);
    };
    fc.assert(fc.property(entries, fc.integer({ min: 1, max: 7 }), isEqual));
  });

  test('a header of 16 KiB is read in less than 100 ms of CPU', () => {
    const start = process.cpuUsage();
    for (const text of [',', '1', '[', ':', '1.1.1.1,', ' ']) {
      clientAddress(SOCKET, text.repeat(16_384 / text.length), 1);
    }
    const { user, system } = process.cpuUsage(start);
    assert.ok(user + system < 100_000, `${user + system} microseconds`);
  });
});

describe('the keys of counters', () => {
  for (const [why, address, network, site] of [
    ['IPv4 is itself', '192.0.2.1', '192.0.2.1', undefined],
    ['IPv6 is its /64', '2001:db8:1:2:3:4:5:6', '2001:db8:1:2', '2001:db8:1::/48'],
    ['zeros left out', '2001:db8::1', '2001:db8:0:0', '2001:db8:0::/48'],
    ['zeros left out within the /64', '2001::2:3:4:5:6', '2001:0:0:2', '2001:0:0::/48'],
    ['zeros left out at the end', '2001:db8:1:2::', '2001:db8:1:2', '2001:db8:1::/48'],
    ['one group left out', '2001:db8:1::4:5:6:7', '2001:db8:1:0', '2001:db8:1::/48'],
    ['loopback', '::1', '0:0:0:0', '0:0:0::/48'],
    ['no address at all', '::', '0:0:0:0', '0:0:0::/48'],
    ['capitals', '2001:DB8:A:B::1', '2001:db8:a:b', '2001:db8:a::/48'],
    ['leading zeros', '2001:0db8:0001:0002::1', '2001:db8:1:2', '2001:db8:1::/48'],
    ['a zone', 'fe80::1%eth0', 'fe80:0:0:0', 'fe80:0:0::/48'],
    ['a dotted quad at the end', '64:ff9b::192.0.2.1', '64:ff9b:0:0', '64:ff9b:0::/48'],
    [
      'a dotted quad after seven groups',
      '64:ff9b:1:2:3:4:192.0.2.1',
      '64:ff9b:1:2',
      '64:ff9b:1::/48',
    ],
    ['a value that is not an address is itself', '', '', undefined],
  ] as const) {
    test(`${why}: ${address || '(empty)'}`, () =>
      assert.deepEqual(counterKeys(address), { network, site }));
  }
});

test('5.11 clients of one IPv6 /64 take turns together', () => {
  const networkOf = (client: string) =>
    Object.assign(Object.create(Exchange.prototype) as Exchange, { client }).network;
  assert.equal(networkOf('2001:db8:1:2::3'), networkOf('2001:db8:1:2:ffff::4'));
  assert.notEqual(networkOf('2001:db8:1:2::3'), networkOf('2001:db8:1:3::3'));
  assert.equal(networkOf('192.0.2.1'), '192.0.2.1');
});
