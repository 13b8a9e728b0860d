// Who sent a request: the address for the log, and the key under which its failures are counted.
import { isIP, isIPv4 } from 'node:net';

/**
 * The client's address: the socket's, or, behind proxies, the entry of `X-Forwarded-For` that is
 * `proxies` from the right; entries further left are the client's own claim. What is missing, too
 * short or no address: the socket's.
 */
export function clientAddress(
  socketAddress: string | undefined,
  forwardedFor: string | undefined,
  proxies: number,
): string {
  if (proxies > 0 && forwardedFor !== undefined) {
    const entry = forwardedFor.split(',').at(-proxies) ?? '';
    const address = withoutPort(entry.trim());
    if (isIP(address) !== 0) return plainAddress(address);
  }
  return plainAddress(socketAddress ?? '');
}

/** One counter for each IPv4 address and each IPv6 /64, which is what one client commonly holds. */
export function counterKey(address: string): string {
  // 3.13
  if (isIP(address) !== 6) return address;
  const [head = '', tail = ''] = address.replace(/%.*$/, '').split('::');
  const left = head === '' ? [] : head.split(':');
  const right = tail === '' ? [] : tail.split(':');
  // A dotted quad at the end stands for two groups; it is never among the first four.
  const missing = Math.max(0, 8 - left.length - right.length - (tail.includes('.') ? 1 : 0));
  const groups = [...left, ...Array<string>(missing).fill('0'), ...right].slice(0, 4);
  return groups.map((group) => Number.parseInt(group, 16).toString(16)).join(':');
}

// "192.0.2.1:4711", "[2001:db8::1]:4711", "[2001:db8::1]"
function withoutPort(entry: string): string {
  // 3.13
  const bracketed = /^\[([^\]]*)\](?::[0-9]+)?$/.exec(entry);
  if (bracketed) return bracketed[1]!;
  return /^[0-9.]+:[0-9]+$/.test(entry) ? entry.slice(0, entry.indexOf(':')) : entry;
}

/**
 * The address with an IPv4-mapped one in its IPv4 form: on "::" IPv4 clients are ::ffff:192.0.2.1
 * (RFC 4291 §2.5.5.2). Proxies write it in longer ways too, which URL brings to one.
 */
export function plainAddress(address: string): string {
  // 3.13
  if (address.startsWith('::ffff:') && isIPv4(address.slice(7))) return address.slice(7);
  if (!/:ffff:/i.test(address) || isIP(address) !== 6 || address.includes('%')) return address;
  const { hostname } = new URL(`http://[${address}]`);
  const hex = /^\[::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})\]$/.exec(hostname);
  if (hex === null) return address;
  const [high, low] = [Number.parseInt(hex[1]!, 16), Number.parseInt(hex[2]!, 16)];
  return [high >> 8, high & 255, low >> 8, low & 255].join('.');
}
