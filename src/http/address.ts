// Determines a client's address and its networks, and the path prefix that proxies removed.
import type { IncomingHttpHeaders } from 'node:http';
import { isIP, SocketAddress } from 'node:net';

/**
 * Behind proxies, the client's address is the entry of `X-Forwarded-For` at position `proxies` from the
 * right, because clients can forge those further left. The socket's address must be plain.
 */
export function clientAddress(socket: string, forwardedFor: string | undefined, proxies: number) {
  if (proxies === 0 || forwardedFor === undefined) return socket;
  const entry = forwardedFor.split(',').at(-proxies)?.trim() ?? '';
  // "192.0.2.1:4711", "[2001:db8::1]:4711", "[2001:db8::1]"
  const match = /^\[([^\]]*)\](?::[0-9]+)?$/.exec(entry) ?? /^([0-9.]+):[0-9]+$/.exec(entry);
  const address = match?.[1] ?? entry;
  return isIP(address) === 0 ? socket : plainAddress(address);
}

// One or more segments (RFC 3986 §3.3), none of them a dot segment, in any spelling.
const PREFIX = /^(?:\/(?!(?:\.|%2e){1,2}(?:\/|$))(?:[\w.~!$&'()*+,;=:@-]|%[0-9a-f]{2})+)+$/i;

/** The path that proxies removed from the request's; empty without proxies, and if it is not valid. */
export function forwardedPrefix(headers: IncomingHttpHeaders, proxies: number): string {
  if (!(proxies > 0)) return '';
  const prefix = String(headers['x-forwarded-prefix']).replace(/\/$/, '');
  return PREFIX.test(prefix) ? prefix : '';
}

/**
 * Returns the networks of an address, by which clients are limited (3.13, 5.11, 6.17): the IPv4 address or the IPv6
 * /64, the least that one client commonly has; and as `site` the IPv6 /48, the most.
 */
export function networksOf(address: string) {
  if (isIP(address) !== 6) return { network: address, site: undefined };
  // A dotted quad at the end is two of the eight groups; `::` replaces those that are zero.
  const text = address.replace(/%.*/, '').replace('.', ':');
  const groups = text
    .replace('::', ':'.repeat(10 - text.split(':').length))
    .split(':', 4)
    .map((group) => Number.parseInt(`0${group}`, 16).toString(16));
  return { network: groups.join(':'), site: `${groups.slice(0, 3).join(':')}::/48` };
}

/**
 * Converts an IPv4-mapped address to IPv4: on "::", IPv4 clients are ::ffff:192.0.2.1 (RFC 4291
 * §2.5.5.2). Proxies use longer spellings too, which SocketAddress normalizes.
 */
export function plainAddress(address: string): string {
  if (!/:ffff:/i.test(address) || isIP(address) !== 6 || address.includes('%')) return address;
  const normal = new SocketAddress({ address, family: 'ipv6' }).address;
  return /^::ffff:([0-9.]+)$/.exec(normal)?.[1] ?? address;
}
