// The attacks. Each is a function that runs until its process ends.
import { createHmac, randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { Connections } from './connections.ts';
import type { HonestRequest } from './honest.ts';
import { LONG_NAME } from './users.ts';

/** An attack and its requirements. */
export interface Attack {
  /** Runs the attack. */
  readonly name: string;
  readonly run: (connections: Connections) => void;
  /** True if it uses users. It then runs on both stores, and honest clients read a user too. */
  readonly hasUsers?: boolean;
  /** The only useful transport. */
  readonly transport?: 'plain' | 'tls';
  /** Its transport if each attack runs once; plain by default. */
  readonly shortTransport?: 'tls';
  /** The only useful store. */
  readonly store?: 'sqlite' | 'postgres';
  readonly settings?: Readonly<Record<string, string>>;
  /** The request of honest clients instead of `GET /`. */
  readonly honest?: readonly HonestRequest[];
  /** Time until it has an effect. */
  readonly lastsMs?: number;
  /** Number of its connections that must stay open, because they do no harm. */
  readonly keeps?: number;
  /** True if Postgres is frozen meanwhile. */
  readonly freezesStore?: boolean;
  /** True if nobody reads the log. */
  readonly leavesLogUnread?: boolean;
}

const JSON_TYPE = 'application/json';
const FORM_TYPE = 'application/x-www-form-urlencoded';

/** Just below the default limit of a body. */
const BODY_BYTES = 99_000;

/** Just below the limit of a head. */
const HEAD_BYTES = 15_000;

/** Time after which an unread connection is replaced. */
const UNREAD_MS = 4_000;

/** A chunked request whose header and trailer have a field of HEAD_BYTES each. The trailer has no end. */
const UNFINISHED_TRAILER =
  `POST /token HTTP/1.1\r\nHost: localhost\r\nContent-Type: ${JSON_TYPE}\r\n` +
  `Transfer-Encoding: chunked\r\nX: ${'x'.repeat(HEAD_BYTES)}\r\n\r\n0\r\nX: ${'x'.repeat(HEAD_BYTES)}`;

function get(path: string, headers = '', method = 'GET'): string {
  return `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n`;
}

function post(path: string, type: string, body: string, headers = ''): string {
  const length = Buffer.byteLength(body);
  const head = `Content-Type: ${type}\r\nContent-Length: ${length}\r\n${headers}`;
  return get(path, head, 'POST') + body;
}

/** A request whose body never ends. */
function unfinished(method: string, path: string, body: string): string {
  const head = `Content-Type: ${JSON_TYPE}\r\nContent-Length: ${body.length + 1}\r\n`;
  return get(path, head, method) + body;
}

/** Text repeated up to a length. */
function fill(bytes: number, text = 'x'): string {
  return text.repeat(Math.floor(bytes / text.length));
}

/** Writes once, then nothing. */
function say(text: string): (socket: Socket) => void {
  const bytes = Buffer.from(text, 'latin1');
  return (socket) => socket.write(bytes);
}

/** Unread requests of one connection: more responses than the kernel buffers. */
function unread(text: string, times: number): (socket: Socket) => void {
  return say(text.repeat(times));
}

/** Writes one piece at a time, after the previous one was sent. */
function drip(start: string, piece: () => string, everyMs: number): (socket: Socket) => void {
  return (socket) => {
    socket.write(start);
    const timer = setInterval(() => {
      if (socket.writableLength === 0) socket.write(piece());
    }, everyMs);
    socket.once('close', () => clearInterval(timer));
  };
}

/** As many names as fit into a form of this size, each at the deepest level. */
function nestedForm(): string {
  const names: string[] = [];
  for (let i = 0, bytes = 0; bytes < BODY_BYTES - 200; i++) {
    const name = `a${i.toString(36)}${'[999]'.repeat(31)}=`;
    names.push(name);
    bytes += name.length + 1;
  }
  return names.join('&');
}

const FORM = post('/token', FORM_TYPE, nestedForm());
const PARAMETERS = Array.from({ length: 1000 }, (_, i) => `${fill(90)}${i}=1`).join('&');

/** A head with a chunked body. */
const CHUNKED = get(
  '/token',
  `Content-Type: ${JSON_TYPE}\r\nTransfer-Encoding: chunked\r\n`,
  'POST',
);

/** As many chunks as one read of the service holds. */
const ONE_BYTE_CHUNKS = fill(64_000, '1\r\nx\r\n');

/** A token with the service's key, different each time. */
function token(secret: string, claims: object): string {
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const iat = Math.floor(Date.now() / 1000);
  const user = { id: 'admin', name: 'Administrator', iat, exp: iat + 3600 };
  const text = `${encode({ alg: 'HS256', typ: 'JWT' })}.${encode({ ...user, ...claims })}`;
  return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`;
}

function bearer(text: string): string {
  return `Authorization: Bearer ${text}\r\n`;
}

function newUser(run: string, i: number, extra = ''): string {
  const email = `${run}-${process.pid}-${i}@example.com`;
  return JSON.stringify({ name: LONG_NAME, email, extra });
}

/** Starts TLS and goes silent after the first bytes of the ClientHello. */
const HALF_HELLO = '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03';

/** Failures that lock an address in these attacks. */
const FAILURES = 5;

/** An address of one /48. Each /64 gets as many turns as lock it. */
function nextAddress(i: number): string {
  return `2001:db8:1:${(Math.floor(i / FAILURES) % 65_536).toString(16)}::1`;
}

/** All attacks. */
export const ATTACKS: readonly Attack[] = [
  {
    name: 'forms of 99 kB that nest indices of 999',
    run: (c) => setInterval(() => c.open(say(FORM)), 250),
  },
  {
    name: '1,000 clients that never read pages of 1,000 users',
    shortTransport: 'tls',
    hasUsers: true,
    run: (c) =>
      c.hold(1000, unread(get('/users?limit=1000'), 20), { isRead: false, lifeMs: UNREAD_MS }),
  },
  {
    name: '1,000 clients that never read a list of all users',
    hasUsers: true,
    run: (c) => c.hold(1000, unread(get('/users'), 1), { isRead: false, lifeMs: UNREAD_MS }),
  },
  {
    name: '1,000 clients that never read different pages of 499 users',
    hasUsers: true,
    shortTransport: 'tls',
    run: (c) => {
      let after = 0;
      c.hold(1000, (socket) => socket.write(get(`/users?limit=499&after=${after++ % 19_000}`)), {
        ...{ isRead: false, lifeMs: UNREAD_MS },
      });
    },
  },
  {
    name: 'clients that request a page of users and reset',
    hasUsers: true,
    run: (c) => {
      let after = 0;
      const headers = `X: ${fill(HEAD_BYTES)}\r\n`;
      c.hold(300, (socket) => {
        socket.write(get(`/users?limit=499&after=${after++ % 19_000}`, headers));
        setTimeout(() => (c.target.isTls ? socket.destroy() : socket.resetAndDestroy()), 30);
      });
    },
  },
  {
    name: '1,000 clients that leave one response unread',
    shortTransport: 'tls',
    run: (c) =>
      c.hold(
        1000,
        drip(get('/openapi.json'), () => get('/openapi.json'), 20),
        { isRead: false },
      ),
  },
  {
    name: '1,200 clients that never read /openapi.json',
    shortTransport: 'tls',
    settings: { PROTECT_USERS: 'true' },
    run: (c) =>
      c.hold(1200, unread(get('/openapi.json'), 60), { isRead: false, lifeMs: UNREAD_MS }),
  },
  {
    name: '900 bodies of 100 kB for /token that lack a byte',
    run: (c) => c.hold(900, say(unfinished('POST', '/token', fill(BODY_BYTES)))),
  },
  {
    name: '900 bodies of 100 kB for GET / that lack a byte',
    shortTransport: 'tls',
    run: (c) => c.hold(900, say(unfinished('GET', '/', fill(BODY_BYTES)))),
  },
  {
    name: '3,000 unfinished heads of 12 kB',
    run: (c) => c.hold(3000, say(get('/', `X: ${fill(12_000)}\r\n`).slice(0, -2))),
  },
  {
    name: '4,000 requests with 2,400 headers each',
    run: (c) =>
      c.hold(
        4000,
        say(
          unfinished('POST', '/token', '').replace('\r\n\r\n', `\r\n${fill(9600, 'a:\r\n')}\r\n`),
        ),
      ),
  },
  {
    name: '6,100 requests with headers of 15 kB and unfinished trailers of 15 kB',
    run: (c) => c.hold(6_100, say(UNFINISHED_TRAILER), { isOnce: true }),
  },
  {
    name: 'new connections from 8 addresses that begin with 2,600 requests',
    run: (c) => c.hold(8, say(get('/').repeat(1300)), { addresses: 8, lifeMs: 200 }),
  },
  {
    name: '200 connections with 1,500 pipelined requests, never read',
    shortTransport: 'tls',
    run: (c) => c.hold(200, unread(get('/'), 1500), { isRead: false, lifeMs: UNREAD_MS }),
  },
  {
    name: '10,050 connections that send half a head',
    run: (c) => c.hold(10_050, say('GET / HTTP/1.1\r\nHost: loc')),
  },
  {
    name: '10,050 connections that stall in a body',
    run: (c) => c.hold(10_050, say(unfinished('POST', '/token', '{'))),
  },
  {
    name: '10,050 connections that stay open after a refusal',
    run: (c) => c.hold(10_050, say('no request\r\n\r\n'), { allowHalfOpen: true, lifeMs: 2_100 }),
  },
  {
    name: '10,050 silent connections',
    shortTransport: 'tls',
    run: (c) => c.hold(10_050, () => {}, { isRaw: true }),
  },
  {
    name: 'failed logins from the /64s of one /48',
    settings: { TRUST_PROXY: '1', AUTH_FAILURES_PER_MINUTE: String(FAILURES) },
    // Time for 50,000 failures, which lock 10,000 addresses.
    lastsMs: 17_000,
    honest: [loginFrom('192.0.2.9'), loginFrom('2001:db8:2::9')],
    run: (c) => {
      let sent = 0;
      const requests = () =>
        Array.from({ length: 50 }, () =>
          post(
            '/token',
            JSON_TYPE,
            '{"id":"admin","pw":"wrong"}',
            `X-Forwarded-For: ${nextAddress(sent++)}\r\n`,
          ),
        ).join('');
      c.flood(20, requests, 100);
    },
  },
  // Attacks that we added.
  {
    name: '200 bodies in chunks of one byte',
    shortTransport: 'tls',
    run: (c) =>
      c.hold(
        200,
        drip(CHUNKED, () => fill(60_000, '1\r\nx\r\n'), 1000),
      ),
  },
  {
    name: '200 bodies in chunks of one byte that nobody reads',
    run: (c) => {
      const refused = CHUNKED.replace('/token', '/none');
      c.hold(100, say(`${refused}0\r\n\r\n${refused}${ONE_BYTE_CHUNKS}`), { isRead: false });
      c.hold(100, say(`${get('/')}${CHUNKED}${ONE_BYTE_CHUNKS}`), { isRead: false });
    },
  },
  {
    name: '500 chunked bodies with extensions of 15 kB',
    run: (c) =>
      c.hold(
        500,
        drip(CHUNKED, () => `1;${fill(HEAD_BYTES)}\r\nx\r\n`, 200),
      ),
  },
  {
    name: 'pipelines of 1,000 requests that end with FIN',
    run: (c) =>
      c.hold(100, (socket) => socket.end(get('/').repeat(1000)), {
        isRead: false,
        allowHalfOpen: true,
        lifeMs: UNREAD_MS,
      }),
  },
  {
    name: '5,000 clients that wait for 100 Continue and send nothing',
    run: (c) =>
      c.hold(
        5000,
        say(
          get(
            '/token',
            `Content-Type: ${JSON_TYPE}\r\nContent-Length: ${BODY_BYTES}\r\nExpect: 100-continue\r\n`,
            'POST',
          ),
        ),
      ),
  },
  {
    name: 'a flood of HEAD, OPTIONS and unknown paths',
    hasUsers: true,
    run: (c) => {
      const requests = Buffer.from(
        [
          get('/users', '', 'HEAD'),
          get('/openapi.json', '', 'HEAD'),
          get('/users/1', '', 'OPTIONS'),
          get(`/${fill(5000, 'a/')}`),
        ].join(''),
      );
      c.flood(50, () => requests, 20);
    },
  },
  {
    name: '500 clients that never read /metrics',
    run: (c) =>
      c.hold(500, unread(get('/metrics'), 500), {
        isRead: false,
        isAdmin: true,
        lifeMs: UNREAD_MS,
      }),
  },
  {
    name: 'handshakes that are ended once they are done',
    transport: 'tls',
    run: (c) => c.hold(100, (socket) => socket.destroy()),
  },
  {
    name: '5,000 handshakes that stop half-way',
    transport: 'tls',
    run: (c) => c.hold(5000, say(HALF_HELLO), { isRaw: true }),
  },
  {
    name: 'renegotiation without an end',
    transport: 'tls',
    run: (c) =>
      c.hold(
        50,
        (socket) => {
          const again = () => {
            if (socket.destroyed) return;
            (socket as TLSSocket).renegotiate({ rejectUnauthorized: false }, (err) =>
              err ? socket.destroy() : again(),
            );
          };
          again();
        },
        { tlsVersion: 'TLSv1.2' },
      ),
  },
  {
    name: '20,000 forged tokens of 10 kB',
    run: (c) => {
      const head = Buffer.from('{"alg":"HS256","typ":"JWT"}').toString('base64url');
      const forged = () => `${head}.${fill(10_000)}.${randomBytes(32).toString('base64url')}`;
      c.flood(50, () => get('/notes', bearer(forged())).repeat(10), 100);
    },
  },
  {
    name: '20,000 different valid tokens of 10 kB',
    run: (c) => {
      let sent = 0;
      const next = () => token(c.target.secret, { jti: sent++, text: fill(7000) });
      c.flood(50, () => get('/notes', bearer(next())), 20);
    },
  },
  {
    name: 'a flood of requests with an unread log',
    leavesLogUnread: true,
    run: (c) => {
      const requests = Buffer.from(
        get(`/${fill(100)}`, `X-Request-Id: ${fill(128)}\r\n`).repeat(20),
      );
      c.flood(20, () => requests, 20);
    },
  },
  {
    name: '500 clients with JSON of 99 kB that only nests',
    run: (c) => {
      const request = Buffer.from(post('/token', JSON_TYPE, fill(BODY_BYTES, '[')));
      const closed = Buffer.from(
        post('/token', JSON_TYPE, fill(BODY_BYTES / 2, '[') + fill(BODY_BYTES / 2, ']')),
      );
      c.flood(250, () => request, 500);
      c.flood(250, () => closed, 500);
    },
  },
  {
    name: '500 clients with JSON of 99 kB of empty objects',
    shortTransport: 'tls',
    run: (c) => {
      const items = fill(BODY_BYTES, '{},').slice(0, -1);
      const request = Buffer.from(post('/token', JSON_TYPE, `[${items}]`));
      c.flood(500, () => request, 500);
    },
  },
  {
    name: '500 clients with forms of 1,000 parameters',
    run: (c) => {
      const request = Buffer.from(post('/token', FORM_TYPE, PARAMETERS));
      c.flood(500, () => request, 500);
    },
  },
  {
    name: 'queries of 15 kB',
    hasUsers: true,
    run: (c) => {
      const query = `${fill(5000, '%41=%42&')}email=${fill(HEAD_BYTES - 6000, '%61')}`;
      const request = Buffer.from(get(`/users?${query}`).repeat(4));
      c.flood(50, () => request, 50);
    },
  },
  {
    name: 'X-Forwarded-For of 15 kB',
    settings: { TRUST_PROXY: '1' },
    run: (c) => {
      const request = Buffer.from(
        get('/', `X-Forwarded-For: ${fill(HEAD_BYTES, '1,')}2001:db8::1\r\n`).repeat(4),
      );
      c.flood(50, () => request, 50);
    },
  },
  {
    name: 'connections that send a request and reset',
    run: (c) =>
      c.hold(50, (socket) => {
        socket.write(get('/'));
        socket.once('data', () => (c.target.isTls ? socket.destroy() : socket.resetAndDestroy()));
      }),
  },
  {
    name: '600 clients that never read /docs',
    run: (c) => c.hold(600, unread(get('/docs'), 60), { isRead: false, lifeMs: UNREAD_MS }),
  },
  {
    name: '500 clients that never read 304s',
    hasUsers: true,
    run: (c) =>
      c.hold(500, unread(get('/users/1', 'If-None-Match: *\r\n'), 2000), {
        isRead: false,
        lifeMs: UNREAD_MS,
      }),
  },
  {
    name: '500 clients that read a list of all users a little at a time',
    hasUsers: true,
    run: (c) =>
      c.hold(
        500,
        (socket) => {
          socket.write(get('/users'));
          // One piece of the received data per turn.
          const timer = setInterval(() => socket.read(), 500);
          socket.once('close', () => clearInterval(timer));
        },
        { isRead: false },
      ),
  },
  {
    name: '2,000 heads that come a byte at a time',
    run: (c) =>
      c.hold(
        2000,
        drip('GET / HTTP/1.1\r\nX: ', () => 'x', 500),
      ),
  },
  {
    name: 'half heads from 1,000 addresses',
    run: (c) => c.hold(10_050, say('GET / HTTP/1.1\r\nHost: loc'), { addresses: 1000 }),
  },
  {
    name: '6,000 idle connections, all of which are kept',
    transport: 'plain',
    keeps: 6000,
    run: (c) => c.hold(6000, say(get('/')), { isOnce: true }),
  },
  {
    name: '10,050 idle connections that have had a response',
    run: (c) => c.hold(10_050, say(get('/'))),
  },
  {
    name: 'a flood of new users with bodies of 99 kB',
    hasUsers: true,
    run: (c) => {
      let sent = 0;
      const extra = fill(BODY_BYTES - 1000);
      c.flood(200, () => post('/users', JSON_TYPE, newUser(c.target.run, sent++, extra)), 200);
    },
  },
  {
    name: 'a flood of new users while Postgres is frozen',
    store: 'postgres',
    freezesStore: true,
    run: (c) => {
      let sent = 0;
      const extra = fill(BODY_BYTES - 1000);
      c.hold(5000, (socket) =>
        socket.write(post('/users', JSON_TYPE, newUser(c.target.run, sent++, extra))),
      );
    },
  },
];

/** A correct login from behind a proxy. */
function loginFrom(address: string): HonestRequest {
  return {
    ...{ path: '/token', method: 'POST', body: '{"id":"admin","pw":"correct horse"}' },
    headers: { 'content-type': JSON_TYPE, 'x-forwarded-for': address },
  };
}
