// The address of a client, and the keys of its failure counters.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  clientAddress,
  counterKeys,
  forwardedPrefix,
  plainAddress,
} from '../../src/http/address.ts';
import { Exchange } from '../../src/server/exchange.ts';

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
  for (const { why, socket, header, proxies, address } of [
    {
      why: 'no proxy: the socket’s',
      socket: SOCKET,
      header: undefined,
      proxies: 0,
      address: SOCKET,
    },
    {
      why: 'no proxy: the header is a claim',
      socket: SOCKET,
      header: '192.0.2.1',
      proxies: 0,
      address: SOCKET,
    },
    {
      why: 'one proxy: the last entry',
      socket: SOCKET,
      header: '192.0.2.1',
      proxies: 1,
      address: '192.0.2.1',
    },
    {
      why: 'one proxy: entries further left are claims',
      socket: SOCKET,
      header: '1.1.1.1, 192.0.2.1',
      proxies: 1,
      address: '192.0.2.1',
    },
    {
      why: 'two proxies: the second from the right',
      socket: SOCKET,
      header: '1.1.1.1, 192.0.2.1, 10.0.0.1',
      proxies: 2,
      address: '192.0.2.1',
    },
    {
      why: 'as many entries as proxies',
      socket: SOCKET,
      header: '192.0.2.1,10.0.0.1',
      proxies: 2,
      address: '192.0.2.1',
    },
    {
      why: 'one entry too few: the socket’s',
      socket: SOCKET,
      header: '192.0.2.1',
      proxies: 2,
      address: SOCKET,
    },
    {
      why: 'no header: the socket’s',
      socket: SOCKET,
      header: undefined,
      proxies: 1,
      address: SOCKET,
    },
    {
      why: 'an empty header: the socket’s',
      socket: SOCKET,
      header: '',
      proxies: 1,
      address: SOCKET,
    },
    {
      why: 'an empty last entry: the socket’s',
      socket: SOCKET,
      header: '192.0.2.1,',
      proxies: 1,
      address: SOCKET,
    },
    { why: 'a name: the socket’s', socket: SOCKET, header: 'unknown', proxies: 1, address: SOCKET },
    {
      why: 'no address: the socket’s',
      socket: SOCKET,
      header: '192.0.2.256',
      proxies: 1,
      address: SOCKET,
    },
    {
      why: 'spaces and tabs around',
      socket: SOCKET,
      header: ' 1.1.1.1 ,\t192.0.2.1 ',
      proxies: 1,
      address: '192.0.2.1',
    },
    {
      why: 'a port is dropped',
      socket: SOCKET,
      header: '192.0.2.1:4711',
      proxies: 1,
      address: '192.0.2.1',
    },
    { why: 'IPv6', socket: SOCKET, header: '2001:db8::1', proxies: 1, address: '2001:db8::1' },
    {
      why: 'IPv6 in brackets',
      socket: SOCKET,
      header: '[2001:db8::1]',
      proxies: 1,
      address: '2001:db8::1',
    },
    {
      why: 'IPv6 with a port',
      socket: SOCKET,
      header: '[2001:db8::1]:4711',
      proxies: 1,
      address: '2001:db8::1',
    },
    {
      why: 'IPv6 with a bracket too few',
      socket: SOCKET,
      header: '[2001:db8::1',
      proxies: 1,
      address: SOCKET,
    },
    {
      why: 'IPv4 in brackets',
      socket: SOCKET,
      header: '[192.0.2.1]',
      proxies: 1,
      address: '192.0.2.1',
    },
    {
      why: 'a quote in a zone, which would end a string in the log',
      socket: SOCKET,
      header: 'fe80::1%"x',
      proxies: 1,
      address: SOCKET,
    },
    {
      why: 'IPv4-mapped',
      socket: SOCKET,
      header: '::ffff:192.0.2.1',
      proxies: 1,
      address: '192.0.2.1',
    },
    {
      why: 'IPv4-mapped with a port',
      socket: SOCKET,
      header: '[::ffff:192.0.2.1]:80',
      proxies: 1,
      address: '192.0.2.1',
    },
    {
      why: 'IPv4-mapped of the socket',
      socket: '::ffff:192.0.2.1',
      header: undefined,
      proxies: 0,
      address: '192.0.2.1',
    },
    {
      why: 'IPv4-mapped in capitals',
      socket: '::FFFF:192.0.2.1',
      header: undefined,
      proxies: 0,
      address: '192.0.2.1',
    },
    {
      why: 'IPv4-mapped in hexadecimal',
      socket: '::ffff:c000:201',
      header: undefined,
      proxies: 0,
      address: '192.0.2.1',
    },
    {
      why: 'IPv4-mapped in hexadecimal with zeros',
      socket: '::ffff:0001:0002',
      header: undefined,
      proxies: 0,
      address: '0.1.0.2',
    },
    {
      why: 'IPv4-mapped, written out',
      socket: '0:0:0:0:0:ffff:192.0.2.1',
      header: undefined,
      proxies: 0,
      address: '192.0.2.1',
    },
    {
      why: 'IPv4-mapped, written out in hexadecimal',
      socket: '0000:0000:0000:0000:0000:ffff:c000:0201',
      header: undefined,
      proxies: 0,
      address: '192.0.2.1',
    },
    {
      why: 'IPv4-mapped, its zeros shortened elsewhere',
      socket: '0::ffff:192.0.2.1',
      header: undefined,
      proxies: 0,
      address: '192.0.2.1',
    },
    {
      why: 'IPv4-compatible, which is not IPv4-mapped',
      socket: '::192.0.2.1',
      header: undefined,
      proxies: 0,
      address: '::192.0.2.1',
    },
    {
      why: 'another prefix',
      socket: '::fffe:192.0.2.1',
      header: undefined,
      proxies: 0,
      address: '::fffe:192.0.2.1',
    },
    {
      why: 'a prefix of ffff in another place',
      socket: '::ffff:0:192.0.2.1',
      header: undefined,
      proxies: 0,
      address: '::ffff:0:192.0.2.1',
    },
    {
      why: 'a closed socket',
      socket: '',
      header: undefined,
      proxies: 0,
      address: '',
    },
    {
      why: 'a closed socket, behind a proxy',
      socket: '',
      header: '192.0.2.1',
      proxies: 1,
      address: '192.0.2.1',
    },
  ]) {
    test(`${why}: ${header ?? socket}`, () =>
      assert.equal(clientAddress(plainAddress(socket), header, proxies), address));
  }

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
  for (const { why, address, key, site } of [
    { why: 'IPv4 is itself', address: '192.0.2.1', key: '192.0.2.1', site: undefined },
    {
      why: 'IPv6 is its /64',
      address: '2001:db8:1:2:3:4:5:6',
      key: '2001:db8:1:2',
      site: '2001:db8:1::/48',
    },
    {
      why: 'zeros left out',
      address: '2001:db8::1',
      key: '2001:db8:0:0',
      site: '2001:db8:0::/48',
    },
    {
      why: 'zeros left out within the /64',
      address: '2001::2:3:4:5:6',
      key: '2001:0:0:2',
      site: '2001:0:0::/48',
    },
    {
      why: 'zeros left out at the end',
      address: '2001:db8:1:2::',
      key: '2001:db8:1:2',
      site: '2001:db8:1::/48',
    },
    {
      why: 'one group left out',
      address: '2001:db8:1::4:5:6:7',
      key: '2001:db8:1:0',
      site: '2001:db8:1::/48',
    },
    { why: 'loopback', address: '::1', key: '0:0:0:0', site: '0:0:0::/48' },
    { why: 'no address at all', address: '::', key: '0:0:0:0', site: '0:0:0::/48' },
    {
      why: 'capitals',
      address: '2001:DB8:A:B::1',
      key: '2001:db8:a:b',
      site: '2001:db8:a::/48',
    },
    {
      why: 'leading zeros',
      address: '2001:0db8:0001:0002::1',
      key: '2001:db8:1:2',
      site: '2001:db8:1::/48',
    },
    { why: 'a zone', address: 'fe80::1%eth0', key: 'fe80:0:0:0', site: 'fe80:0:0::/48' },
    {
      why: 'a dotted quad at the end',
      address: '64:ff9b::192.0.2.1',
      key: '64:ff9b:0:0',
      site: '64:ff9b:0::/48',
    },
    {
      why: 'a dotted quad after seven groups',
      address: '64:ff9b:1:2:3:4:192.0.2.1',
      key: '64:ff9b:1:2',
      site: '64:ff9b:1::/48',
    },
    { why: 'a value that is not an address is itself', address: '', key: '', site: undefined },
  ]) {
    test(`${why}: ${address || '(empty)'}`, () =>
      assert.deepEqual(counterKeys(address), { network: key, site }));
  }
});

test('5.11 clients of one IPv6 /64 take turns together', () => {
  const networkOf = (client: string) =>
    Object.assign(Object.create(Exchange.prototype) as Exchange, { client }).network;
  assert.equal(networkOf('2001:db8:1:2::3'), networkOf('2001:db8:1:2:ffff::4'));
  assert.notEqual(networkOf('2001:db8:1:2::3'), networkOf('2001:db8:1:3::3'));
  assert.equal(networkOf('192.0.2.1'), '192.0.2.1');
});
